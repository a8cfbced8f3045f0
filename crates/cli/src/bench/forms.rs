//! Other forms of the command line: presets, netperf's names of tests, and flags alone as iperf3 has them (`outboard bench
//! -s`, `outboard bench -c HOST -P 4`: a server, and a stream).
//!
//! A preset is a workload with arguments that come before the user's own, so that those win. `outboard bench --preset
//! vm-crr --duration 5` becomes `outboard bench crr --preset vm-crr --loopback … --duration 5`.

use std::ffi::OsString;

/// A published experiment: its name, the workload, and its parameters as arguments.
const PRESETS: [(&str, &[&str]); 5] = [
    (
        "vm-crr",
        &["crr", "--loopback", "--request", "64", "--answer", "8KiB", "--duration", "400", "--trials", "3"],
    ),
    (
        "vm-stream",
        &["stream", "--loopback", "--request", "1", "--answer", "20MB", "--duration", "400", "--trials", "3"],
    ),
    (
        "vm-rr",
        &[
            "rr",
            "--loopback",
            "--udp",
            "--request",
            "200",
            "--answer",
            "1000",
            "--duration",
            "400",
            "--trials",
            "3",
        ],
    ),
    ("tandem-ftp", &["file", "--size", "6MB", "--count", "100", "--trials", "3"]),
    ("hp3000-messages", &["messages", "--size", "1408", "--count", "20000", "--trials", "3"]),
];

/// netperf's tests, with netperf's own sizes.
const NETPERF: [(&str, &[&str]); 6] = [
    ("TCP_STREAM", &["stream", "--direction", "upload"]),
    ("TCP_MAERTS", &["stream", "--direction", "download"]),
    ("TCP_RR", &["rr", "--size", "1"]),
    ("TCP_CRR", &["crr", "--request", "1", "--answer", "1"]),
    ("UDP_RR", &["rr", "--udp", "--size", "1"]),
    ("UDP_STREAM", &["messages", "--udp", "--size", "65507", "--duration", "10"]),
];

/// What `outboard bench --help` says of them.
pub(crate) const HELP: &str = "Other forms:
  outboard bench --preset NAME [OPTIONS]  A published experiment: vm-crr, vm-stream, vm-rr, tandem-ftp, hp3000-messages
  outboard bench TCP_RR [OPTIONS]         netperf's names: TCP_STREAM TCP_MAERTS TCP_RR TCP_CRR UDP_RR UDP_STREAM
  outboard bench -s [OPTIONS]             The server of a measurement between two machines
  outboard bench -c HOST [OPTIONS]        Its client: a stream, with iperf3's flags; or bench WORKLOAD -c HOST";

/// The same command line in the form that clap knows. An error says what is wrong.
pub(crate) fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    if arguments.get(1).is_none_or(|command| command != "bench") {
        return Ok(arguments);
    }
    let (head, rest) = arguments.split_at(2);
    let mut rest = rest.to_vec();
    let first = rest.first().and_then(|first| first.to_str()).unwrap_or_default().to_owned();
    if let Some((_, form)) = NETPERF.iter().find(|(name, _)| *name == first) {
        rest.splice(..1, form.iter().map(OsString::from));
        return Ok([head, &rest].concat());
    }
    let Some(name) = preset(&rest) else {
        // iperf3's manner: flags alone.
        let has = |flags: [&str; 2]| rest.iter().any(|argument| flags.iter().any(|flag| argument == flag));
        let is_flags = first.starts_with('-') && !has(["-h", "--help"]);
        match (is_flags, has(["-s", "--server"])) {
            (true, true) => rest.insert(0, "server".into()),
            (true, false) => rest.insert(0, "stream".into()),
            (false, _) => {}
        }
        return Ok([head, &rest].concat());
    };
    let Some((_, form)) = PRESETS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        return Err(format!("`{name}` is no preset: there are {}", known.join(", ")));
    };
    if !first.starts_with('-') {
        if first != form[0] {
            return Err(format!("{name} is a preset of `{}` and not of `{first}`", form[0]));
        }
        rest.remove(0);
    }
    let form = without(form, &rest);
    Ok([head, &form, &rest].concat())
}

/// A form without the flags that `own` has too: a flag that may be given several times would add to the form's.
fn without(form: &[&str], own: &[OsString]) -> Vec<OsString> {
    let is_own = |flag: &str| {
        let with_value = format!("{flag}=");
        own.iter().any(|one| one == flag || one.to_str().is_some_and(|text| text.starts_with(&with_value)))
    };
    let mut kept = Vec::new();
    let mut keep = true;
    for word in form {
        // What does not begin so is the value of the flag before it.
        if word.starts_with("--") {
            keep = !is_own(word);
        }
        if keep {
            kept.push(OsString::from(word));
        }
    }
    kept
}

/// The name that follows `--preset`.
fn preset(arguments: &[OsString]) -> Option<String> {
    arguments.iter().enumerate().find_map(|(position, argument)| {
        let text = argument.to_str()?;
        match text.strip_prefix("--preset=") {
            Some(name) => Some(name.to_owned()),
            None if text == "--preset" => arguments.get(position + 1)?.to_str().map(str::to_owned),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Cli;

    fn line(text: &str) -> Result<String, String> {
        let arguments = text.split_whitespace().map(OsString::from).collect();
        let expanded = expand(arguments)?;
        Ok(expanded.iter().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn presets_come_before_what_the_user_says() {
        assert_eq!(
            line("outboard bench --preset vm-rr -t 5").unwrap(),
            "outboard bench rr --loopback --udp --request 200 --answer 1000 --duration 400 --trials 3 --preset vm-rr -t 5"
        );
        assert_eq!(
            line("outboard bench rr --preset=vm-rr"),
            line("outboard bench --preset=vm-rr rr")
                .map(|text| { text.replace(" --preset=vm-rr rr", " --preset=vm-rr") })
        );
        assert_eq!(
            line("outboard bench --preset tandem-ftp --count=2 --size 1MB").unwrap(),
            "outboard bench file --trials 3 --preset tandem-ftp --count=2 --size 1MB"
        );
        assert!(line("outboard bench crr --preset vm-rr").unwrap_err().contains("not of `crr`"));
        assert!(line("outboard bench --preset vax").unwrap_err().contains("hp3000-messages"));
        assert_eq!(line("outboard run --preset vax").unwrap(), "outboard run --preset vax");
    }

    #[test]
    fn flags_alone_mean_what_iperf3_means() {
        assert_eq!(line("outboard bench -s -p 9").unwrap(), "outboard bench server -s -p 9");
        assert_eq!(line("outboard bench -c h -P 4 -R").unwrap(), "outboard bench stream -c h -P 4 -R");
        for same in ["outboard bench --help", "outboard bench", "outboard bench rr -s", "outboard status -s"]
        {
            assert_eq!(line(same).unwrap(), same);
        }
        for flags in [
            "-s",
            "-s -4 -p 5201",
            "-c h -p 5201 -t 5 -l 128KiB -P 2 -R -i 2 -J -w 1MB -C cubic -O 1 -4",
            "-c h -n 5MB --bidir -6",
        ] {
            let expanded = line(&format!("outboard bench {flags}")).unwrap();
            if let Err(error) = Cli::try_parse_from(expanded.split_whitespace()) {
                panic!("{flags}: {error}");
            }
        }
    }

    #[test]
    fn every_form_is_understood() {
        let forms = PRESETS.iter().map(|(name, _)| format!("outboard bench --preset {name} --trials 9"));
        let tests = NETPERF.iter().map(|(name, _)| format!("outboard bench {name} --trials 9"));
        for form in forms.chain(tests) {
            let expanded = line(&form).unwrap();
            if let Err(error) = Cli::try_parse_from(expanded.split_whitespace()) {
                panic!("{form}: {error}");
            }
        }
    }
}
