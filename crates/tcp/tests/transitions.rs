//! The whole transition table against its reviewed snapshot: RFC 9293 figure 5 with what the project adds.

use tcp::State;
use tcp::state::Event;

#[test]
fn the_transition_table_is_the_reviewed_one() {
    let mut table = String::new();
    for state in State::ALL {
        for event in Event::ALL {
            if let Some(next) = state.on(event) {
                let line = format!(
                    "{:<12} {:<15} -> {:<12} {:?}",
                    state.name(),
                    format!("{event:?}"),
                    next.state.name(),
                    next.action
                );
                table.push_str(line.trim_end());
                table.push('\n');
            }
        }
    }
    insta::assert_snapshot!(table);
}
