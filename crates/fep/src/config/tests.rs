use std::str::FromStr;

use super::*;

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

#[test]
fn the_least_that_works_gets_the_defaults() {
    let config = Config::new(&settings("tap = 'ob0'\naddress = '10.0.0.2/24'")).unwrap();
    assert_eq!(config.network.mtu, 1500);
    assert_eq!(config.worker.spin, DEFAULT_SPIN);
    assert_eq!(config.worker.slice, Some(DEFAULT_SLICE));
    assert!(config.offload && config.network.routes.is_empty());
}

#[test]
fn flags_win_over_the_file() {
    let file = settings(
        "tap = 'ob0'\naddress = '10.0.0.2/24'\nmtu = 9000\ngateway = '10.0.0.1'\ncongestion-control = 'bbr'",
    );
    let flags = Settings { mtu: Some(1400), ..Settings::default() };
    let config = Config::new(&flags.over(file)).unwrap();
    assert_eq!(config.network.mtu, 1400);
    assert_eq!(config.worker.congestion, CongestionAlgorithm::Bbr);
    assert_eq!(
        config.network.routes,
        [NetworkRoute {
            destination: "0.0.0.0/0".parse().unwrap(),
            gateway: "10.0.0.1".parse().ok(),
            mtu: None
        }]
    );
}

#[test]
fn a_route_may_say_how_large_its_packets_are() {
    let base = "tap = 'ob0'\naddress = '10.0.0.2/24'\n";
    let file =
        settings(&format!("{base}[[route]]\ndestination = '10.1.0.0/16'\ngateway = '10.0.0.1'\nmtu = 1400"));
    let expected = NetworkRoute {
        destination: "10.1.0.0/16".parse().unwrap(),
        gateway: "10.0.0.1".parse().ok(),
        mtu: Some(1400),
    };
    assert_eq!(Config::new(&file).unwrap().network.routes, [expected]);
    let route = |text: &str| RouteSetting::from_str(text);
    assert_eq!(file.route.unwrap(), [route("10.1.0.0/16 via 10.0.0.1 mtu 1400").unwrap()]);
    assert_eq!(route("default via 10.0.0.1").unwrap().destination, "0.0.0.0/0");
    assert_eq!(route("10.2.0.0/16").unwrap().gateway, None);
    for wrong in ["", "10.1.0.0/16 via", "10.1.0.0/16 via here", "10.1.0.0/16 mtu -1", "10.1.0.0/16 dev ob0"]
    {
        assert!(route(wrong).is_err(), "{wrong:?}");
    }
    // A route to everywhere takes the gateway's place.
    let flags = Settings {
        route: Some(vec![route("default via 10.0.0.1 mtu 1300").unwrap()]),
        ..Settings::default()
    };
    let both = Config::new(&flags.over(settings(&format!("{base}gateway = '10.0.0.1'")))).unwrap();
    assert_eq!(both.network.routes.len(), 1);
    assert_eq!(both.network.routes[0].mtu, Some(1300));
}

#[test]
fn what_is_said_of_paths_reaches_the_connections() {
    let base = "tap = 'ob0'\naddress = '10.0.0.2/24'\n";
    let tcp = |text: &str| {
        let mut tcp = tcp::Config::default();
        Config::new(&settings(&format!("{base}{text}"))).unwrap().worker.path.apply(&mut tcp);
        (tcp.ecn, tcp.accept_ecn, tcp.accurate_ecn, tcp.mtu_probing)
    };
    assert_eq!(tcp(""), (false, true, AccurateEcn::Accept, MtuProbing::OnBlackHole), "the defaults");
    assert_eq!(tcp("ecn = 'off'\nmtu_probing = 'off'"), (false, false, AccurateEcn::Off, MtuProbing::Off));
    assert!(tcp("ecn = 'classic'").0);
    let (ecn, _, accurate, probing) = tcp("ecn = 'accurate'\nmtu_probing = 'always'");
    assert_eq!((ecn, accurate, probing), (true, AccurateEcn::Offer, MtuProbing::Always));
    assert!(toml::from_str::<Settings>("ecn = 'sometimes'").is_err());
}

#[test]
fn an_unknown_key_is_named() {
    for text in ["adress = '10.0.0.2/24'", "[limits]\nadress = 3", "[[route]]\ndestination = ''\nadress = 1"]
    {
        let error = toml::from_str::<Settings>(text).unwrap_err().to_string();
        assert!(error.contains("adress"), "{error}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_key() {
    let base = "tap = 'ob0'\naddress = '10.0.0.2/24'\n";
    for (line, key) in [
        ("mtu = 100", "mtu"),
        ("mtu = 70000", "mtu"),
        ("gateway = '10.0.1.1'", "gateway"),
        ("kernel_address = '10.0.0.1'", "kernel_address"),
        ("spin_us = 5000000", "spin_us"),
        ("congestion_control = 'vegas'", "congestion_control"),
        ("syn_cookies = 'sometimes'", "syn_cookies"),
        ("socket_mode = '999'", "socket_mode"),
        ("name = 'a/b'", "name"),
        ("limits.sockets = 1", "limits.sockets"),
        ("[[route]]\ndestination = '10.1.0.0/16'\nmtu = 100", "route"),
    ] {
        let error = Config::new(&settings(&format!("{base}{line}"))).unwrap_err().to_string();
        assert!(error.starts_with(key), "{line}: {error}");
    }
    assert!(Config::new(&settings("address = '10.0.0.2/24'")).unwrap_err().to_string().contains("--tap"));
}

#[test]
fn the_example_file_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/outboard.toml");
    Config::new(&Settings::read(&path).unwrap()).unwrap();
}

#[test]
fn a_slice_is_as_the_kernel_gives_it_or_none() {
    let base = "tap = 'ob0'\naddress = '10.0.0.2/24'\n";
    let slice =
        |us: u64| Config::new(&settings(&format!("{base}slice_us = {us}"))).map(|config| config.worker.slice);
    assert_eq!(slice(0).unwrap(), None);
    assert_eq!(slice(3000).unwrap(), Some(Duration::from_millis(3)));
    assert!(slice(99).is_err() && slice(100_001).is_err());
}
