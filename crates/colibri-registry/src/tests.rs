use std::path::Path;

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Registry, DocumentError> {
    Registry::parse(text.as_bytes(), "external-mcp.json")
}

/// The registry with this entry alone, called `s`.
fn one(entry: &str) -> Result<ServerEntry, DocumentError> {
    let mut registry = read(&format!("{{\"servers\":{{\"s\":{entry}}}}}"))?;
    match registry.refused.remove("s") {
        Some(error) => Err(error),
        None => Ok(registry.servers.remove("s").unwrap()),
    }
}

fn with(key_and_value: &str) -> Result<ServerEntry, DocumentError> {
    one(&format!("{{\"command\":\"/bin/x\",{key_and_value}}}"))
}

fn jailed(jail: &str) -> Result<Jail, DocumentError> {
    with(&format!("\"jail\":{{{jail}}}")).map(|entry| entry.jail().unwrap().clone())
}

#[test]
fn of_other_keys_the_names_alone_are_known() {
    for value in ["1", "null", "\"x\"", "[[]]", "{\"allow\":7}"] {
        assert!(
            with(&format!(
                "\"tools\":{value},\"isolation\":{value},\"record\":{value}"
            ))
            .is_ok(),
            "{value}"
        );
    }
    assert!(with("\"tool\":{}").is_err());
    assert!(one(r#"{"url":7,"headers":7}"#).unwrap().command.is_none());
}

#[test]
fn a_command_and_a_url_do_not_go_together() {
    for entry in [
        r#"{"command":"/x","url":"http://h"}"#,
        r#"{"url":"http://h","args":[]}"#,
        r#"{"url":"http://h","env":{}}"#,
        r#"{"url":"http://h","cwd":"/x"}"#,
        r#"{"url":"http://h","jail":{"name":"x"}}"#,
    ] {
        assert!(one(entry).is_err(), "{entry}");
    }
}

#[test]
fn a_package_stands_in_place_of_a_command() {
    let lock = format!("sha256:{}", "0a".repeat(32));
    let with = |more: &str| {
        one(&format!(
            "{{\"from\":\"pypi:time==1\",\"lock\":\"{lock}\"{more}}}"
        ))
    };
    let command = with(r#","args":["--local"],"env":{"A":"b"}"#)
        .unwrap()
        .command
        .unwrap();
    let package = command.package.clone().unwrap();
    assert_eq!(
        (package.origin.to_string().as_str(), package.lock.len()),
        ("pypi:time==1", 64)
    );
    assert_eq!(
        (command.program.as_path(), command.args.len()),
        (Path::new(""), 1)
    );
    for (more, why) in [
        (r#","command":"/bin/x""#, "has no command"),
        (r#","url":"http://h""#, "has no url"),
        (r#","jail":{"name":"x"}"#, "has no jail"),
    ] {
        let error = match with(more) {
            Err(error) => error,
            Ok(_) => panic!("{more}"),
        };
        assert!(error.message.contains(why), "{more}: {error}");
    }
    for entry in [
        r#"{"from":"pypi:time==1"}"#.to_owned(),
        r#"{"from":"pypi:time==1","lock":"sha256:00"}"#.to_owned(),
        format!(r#"{{"from":"pypi:time","lock":"{lock}"}}"#),
        format!(r#"{{"lock":"{lock}"}}"#),
        format!(r#"{{"command":"/bin/x","lock":"{lock}"}}"#),
    ] {
        assert!(one(&entry).is_err(), "{entry}");
    }
    // One that is wrong blocks itself alone: it asks for no jail.
    let registry =
        read(r#"{"servers":{"a":{"command":"/bin/x"},"b":{"from":"pypi:time","lock":"x"}}}"#)
            .unwrap();
    assert_eq!(registry.servers.keys().collect::<Vec<_>>(), ["a"]);
    assert!(registry.refused["b"].message.contains("NAME==VERSION"));
}

#[test]
fn reads_the_example_of_the_design() {
    let text = r#"{ "servers": {
      "github": {
        "command": "/usr/local/bin/github-mcp-server", "args": ["stdio"],
        "env": { "LOG": "warn", "GITHUB_TOKEN": { "secret": "github" } },
        "jail": { "path": "/usr/local/libexec/colibri/roots/mcp0", "user": "mcp0", "ip4": ["192.0.2.7"] },
        "isolation": "user", "idle_timeout_s": 300, "timeout_ms": 30000,
        "tools": { "allow": ["*"], "deny": ["delete_*"], "confirm": ["create_*"] } },
      "build": { "command": "/usr/local/bin/build-mcp", "jail": { "name": "build0" } },
      "docs": { "url": "https://docs.example.org/mcp", "headers": { "Authorization": { "secret": "docs" } } } } }"#;
    let registry = read(text).unwrap();
    assert_eq!(
        registry.servers.keys().collect::<Vec<_>>(),
        ["build", "docs", "github"]
    );
    let github = &registry.servers["github"];
    let command = github.command.as_ref().unwrap();
    let jail = command.jail.as_ref().unwrap();
    assert_eq!(
        command.program,
        Path::new("/usr/local/bin/github-mcp-server")
    );
    assert_eq!(command.args, ["stdio"]);
    assert_eq!(command.env["LOG"], EntryValue::Plain("warn".into()));
    assert_eq!(
        command.env["GITHUB_TOKEN"],
        EntryValue::Secret("github".into())
    );
    assert_eq!(
        jail.path.as_deref(),
        Some(Path::new("/usr/local/libexec/colibri/roots/mcp0"))
    );
    assert_eq!(
        jail.ip4,
        Network::Addresses(vec!["192.0.2.7".parse().unwrap()])
    );
    assert_eq!(jail.ip6, Network::Disable);
    let build = registry.servers["build"].jail().unwrap();
    assert_eq!(build.name.as_deref(), Some("build0"));
    assert!(registry.servers["docs"].command.is_none());
}

#[test]
fn an_entry_that_asks_for_no_jail_is_refused_alone() {
    let good = r#""good":{"command":"/bin/x"}"#;
    for (bad, id, why) in [
        (
            r#""bad":{"command":"npx","args":["-y","x"]}"#,
            "bad",
            "command -v",
        ),
        (
            r#""my_server":{"command":"/bin/x"}"#,
            "my_server",
            "rename it",
        ),
    ] {
        let registry = read(&format!("{{\"mcpServers\":{{{good},{bad}}}}}")).unwrap();
        assert_eq!(
            registry.servers.keys().collect::<Vec<_>>(),
            ["good"],
            "{bad}"
        );
        let error = &registry.refused[id];
        assert!(error.message.contains(why), "{error}");
        let twice = format!("{{\"mcpServers\":{{{bad}}},\"servers\":{{{bad}}}}}");
        assert!(
            read(&twice).unwrap_err().message.contains("both"),
            "{twice}"
        );
    }
    // Whatever may be about a jail, or cannot be shown, refuses all.
    for bad in [
        r#""bad":{"command":"npx","jail":{"name":"j"}}"#,
        r#""bad":{"command":"npx","jial":{"name":"j"}}"#,
        r#""my_server":{"command":"/bin/x","jail":{"name":"j"}}"#,
        r#""bad":{"command":"/bin/x","args":["a"],"arg":[]}"#,
        r#""bad":{"command":"/bin/x","env":{"A-B":"c"}}"#,
        r#""..":{"command":"/bin/x"}"#,
        r#""Bad":{"command":"npx"}"#,
        r#""bad":"/bin/x""#,
        "\"b\\u0007d\":{\"command\":\"/bin/x\"}",
        r#""":{"command":"/bin/x"}"#,
    ] {
        assert!(
            read(&format!("{{\"servers\":{{{good},{bad}}}}}")).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn digest_is_of_the_bytes_as_written() {
    let spaced = r#"{"mcpServers":{"s": { "command" : "/bin/x" } }}"#;
    let entry = &read(spaced).unwrap().servers["s"];
    assert_eq!(entry.digest, sha256_hex(br#"{ "command" : "/bin/x" }"#));
    assert_eq!(
        sha256_hex(b""),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
}

#[test]
fn the_same_id_in_both_lists_is_refused() {
    let entry = "{\"command\":\"/bin/x\"}";
    let both = format!("{{\"servers\":{{\"a\":{entry}}},\"mcpServers\":{{\"b\":{entry}}}}}");
    assert_eq!(read(&both).unwrap().servers.len(), 2);
    let error = read(&both.replace("\"b\"", "\"a\"")).unwrap_err();
    assert!(
        error.message.contains("both servers and mcpServers"),
        "{error}"
    );
    assert_eq!(error.path, "mcpServers.a");
    assert!(
        read(&format!(
            "{{\"servers\":{{\"a\":{entry},\"\\u0061\":{entry}}}}}"
        ))
        .is_err()
    );
}

#[test]
fn a_typo_never_runs_a_server_on_the_host() {
    for key in [
        "jial",
        "Jail",
        "JAIL",
        "jails",
        "jail ",
        "\\u006aail2",
        "exec.prestart",
        "EXEC.x",
    ] {
        let error = with(&format!("\"{key}\":{{\"name\":\"x\"}}")).unwrap_err();
        assert!(error.message.contains("unknown key"), "{error}");
    }
    assert!(with("\"jail\":null").is_err());
    assert!(with("\"jail\":{}").is_err());
    assert!(with("\"jail\":\"build0\"").is_err());
    assert!(jailed("\"name\":\"x\",\"exec.prestart\":\"/bin/sh\"").is_err());
}

#[test]
fn commands_are_absolute_and_plain() {
    for command in [
        "",
        "x",
        "bin/x",
        "./x",
        "../x",
        "~/x",
        "/",
        "//bin/x",
        "/bin//x",
        "/bin/x/",
        "/bin/./x",
        "/bin/../x",
        "/..",
        "/bin/x\\u0000",
        "/bin/x\\n",
        "/bin/\\u001bx",
        "/bin/x\\u0085",
    ] {
        let error = one(&format!("{{\"command\":\"{command}\"}}")).unwrap_err();
        assert_eq!(error.path, "servers.s.command", "{error}");
    }
    assert!(one(&format!("{{\"command\":\"/{}\"}}", "x".repeat(1023))).is_err());
    for entry in [
        "{}",
        "null",
        "[]",
        "\"/bin/x\"",
        "{\"args\":[]}",
        "{\"command\":[\"/bin/x\"]}",
    ] {
        assert!(one(entry).is_err(), "{entry}");
    }
    assert!(one("{\"command\":\"/opt/My Server/über\"}").is_ok());
}

#[test]
fn environment_is_checked() {
    for env in [
        r#"{"":"x"}"#,
        r#"{"1A":"x"}"#,
        r#"{"A=B":"x"}"#,
        r#"{"A B":"x"}"#,
        r#"{"Ä":"x"}"#,
        r#"{"A\u0000":"x"}"#,
        r#"{"A":"x\u0000y"}"#,
        r#"{"A":"x\ny"}"#,
        r#"{"A":1}"#,
        r#"{"A":true}"#,
        r#"{"A":["x"]}"#,
        r#"["A=x"]"#,
        r#"{"A":{"secret":""}}"#,
        r#"{"A":{"Secret":"a"}}"#,
        r#"{"A":"x","A":"x"}"#,
    ] {
        assert!(with(&format!("\"env\":{env}")).is_err(), "{env}");
    }
}

#[test]
fn jail_values_are_checked() {
    let long = format!("\"name\":\"{}\"", "a".repeat(64));
    for jail in [
        r#""name":"""#,
        r#""name":"0""#,
        r#""name":"-1""#,
        r#""name":"+3""#,
        r#""name":" 3""#,
        r#""name":"007""#,
        r#""name":"*""#,
        r#""name":"a.*""#,
        r#""name":"a.""#,
        r#""name":".a""#,
        r#""name":"a..b""#,
        r#""name":"../x""#,
        r#""name":"a/b""#,
        r#""name":"a=b""#,
        r#""name":"a,b""#,
        r#""name":"a\n""#,
        r#""name":"a\tb""#,
        r#""name":"a\u202eb""#,
        r#""name":"a\u0301""#,
        &long,
        r#""name":"colibri-0123456789abcdef""#,
        r#""path":"relative""#,
        r#""path":"/""#,
        r#""path":"/a/../b""#,
        r#""path":"/a//b""#,
        r#""path":"/a/""#,
        r#""path":"/a,b""#,
        r#""path":"/a=b""#,
        r#""path":"/a\nb""#,
        r#""path":"/a\u0000b""#,
        r#""path":"/a","root_path":"/a""#,
        r#""user":"mcp0""#,
        r#""name":"a","user":"0""#,
        r#""name":"a","user":"Root""#,
        r#""name":"a","user":"a,b""#,
        r#""name":"a","ip4":"em0|192.0.2.1""#,
        r#""name":"a","ip4":["em0|192.0.2.1"]"#,
        r#""name":"a","ip4":["192.0.2.1/24"]"#,
        r#""name":"a","ip4":["192.0.2.1,192.0.2.2"]"#,
        r#""name":"a","ip4":"192.0.2.1""#,
        r#""name":"a","ip4":[]"#,
        r#""name":"a","ip4":"new""#,
        r#""name":"a","ip4":["::1"]"#,
        r#""name":"a","ip6":["192.0.2.1"]"#,
        r#""name":"a","ip4":["0.0.0.0"]"#,
        r#""name":"a","ip4":["224.0.0.1"]"#,
        r#""name":"a","ip6":["::ffff:192.0.2.1"]"#,
        r#""name":"a","ip6":["fe80::1%em0"]"#,
        r#""name":"a","ip4":["192.0.2.1","192.0.2.1"]"#,
        r#""name":"a","ip4":["192.0.2.01"]"#,
        r#""name":"a","ip4":null"#,
        r#""name":"a","allow":["allow.raw_sockets"]"#,
        r#""name":"a","allow":["noraw_sockets"]"#,
        r#""name":"a","allow":["mount.nodevfs"]"#,
        r#""name":"a","allow":["a=1"]"#,
        r#""name":"a","allow":["a,b"]"#,
        r#""name":"a","allow":[""]"#,
        r#""name":"a","allow":["A"]"#,
        r#""name":"a","allow":"raw_sockets""#,
        r#""name":"a","mounts":[{"path":"/a"}]"#,
        r#""name":"a","mounts":[{"path":"a","at":"/b"}]"#,
        r#""name":"a","mounts":[{"path":"/a","at":"/"}]"#,
        r#""name":"a","mounts":[{"path":"/","at":"/b"}]"#,
        r#""name":"a","mounts":[{"path":"/a","at":"/dev/x"}]"#,
        r#""name":"a","mounts":[{"path":"/a","at":"/tmp"}]"#,
        r#""name":"a","mounts":[{"path":"/a","at":"/b"},{"path":"/c","at":"/b"}]"#,
        r#""name":"a","mounts":[{"path":"/a","at":"/b","write":1}]"#,
        r#""path":"/a","abi":"Linux""#,
        r#""path":"/a","abi":"""#,
        r#""path":"/a","abi":["linux"]"#,
        r#""name":"a","limits":{"memory":"2g"}"#,
        r#""name":"a","limits":{"memory":"-1"}"#,
        r#""name":"a","limits":{"memory":"1.5G"}"#,
        r#""name":"a","limits":{"memory":0}"#,
        r#""name":"a","limits":{"memory":"0G"}"#,
        r#""name":"a","limits":{"memory":"G"}"#,
        r#""name":"a","limits":{"memory":"16777216T"}"#,
        r#""name":"a","limits":{"memory":"99999999999999999999"}"#,
        r#""name":"a","limits":{"memory":" 2G"}"#,
        r#""name":"a","limits":{"memory":"2GB"}"#,
        r#""name":"a","limits":{"processes":0}"#,
        r#""name":"a","limits":{"processes":"5"}"#,
        r#""name":"a","limits":{"open_files":3}"#,
        r#""name":"a","limits":{"cpu":1}"#,
    ] {
        assert!(jailed(jail).is_err(), "{jail}");
    }
}

#[test]
fn every_known_key_of_a_jail_is_read() {
    for key in crate::jail::JAIL_KEYS {
        assert!(
            jailed(&format!("\"name\":\"a\",\"{key}\":[[]]")).is_err(),
            "{key}"
        );
    }
}

#[test]
fn jails_are_read() {
    let jail = jailed(
        r#""path":"/r","user":"mcp0","ip4":"inherit","ip6":["2001:db8::7"],"allow":["raw_sockets","mount.nullfs"],
        "mounts":[{"path":"/home/op/project","at":"/work","write":true}],
        "limits":{"memory":"2G","processes":128,"open_files":1024,"file_size":4096,"tmp":"64M"}"#,
    )
    .unwrap();
    assert_eq!((jail.ip4, jail.only_root_path), (Network::Inherit, false));
    assert_eq!(jail.abi, Abi::FreeBsd, "Linux by name alone");
    assert_eq!(
        jailed(r#""path":"/r","abi":"linux""#).unwrap().abi,
        Abi::Linux
    );
    assert_eq!(jail.limits.get(RctlResource::Memory), Some(2 << 30));
    assert_eq!(jail.limits.get(RctlResource::FileSize), Some(4096));
    assert_eq!(jail.limits.get(RctlResource::Tmp), Some(64 << 20));
    assert_eq!(jail.limits.get(RctlResource::Swap), None);
    assert!(jail.mounts[0].write);

    let old = jailed(r#""root_path":"/r""#).unwrap();
    assert_eq!(
        (old.path.as_deref(), old.root_path, old.only_root_path),
        (Some(Path::new("/r")), None, true)
    );
    let both = jailed(r#""name":"a.b","path":"/p","root_path":"/r""#).unwrap();
    assert_eq!(
        (both.root_path.as_deref(), both.only_root_path),
        (Some(Path::new("/r")), false)
    );
}

#[test]
fn values_are_not_shown_by_debug() {
    let entry = with(r#""env":{"TOKEN":"SECRETabc"}"#).unwrap();
    assert!(!format!("{entry:?}").contains("SECRET"));
}

proptest! {
    #[test]
    fn no_text_of_a_jail_holds_what_its_parameters_are_parted_by(
        text in prop_oneof![any::<String>(), "[/a-zA-Z0-9|,=.*]{0,12}"],
    ) {
        let text = serde_json::to_string(&text).unwrap();
        for value in [format!("\"name\":{text}"), format!("\"user\":{text}"), format!("\"allow\":[{text}]")] {
            let Ok(jail) = jailed(&format!("\"path\":\"/r\",{value}")) else { continue };
            // Nor what an rctl(8) rule takes apart.
            for text in [jail.name, jail.user].into_iter().flatten().chain(jail.allow) {
                prop_assert!(!text.contains([',', '=', '\n', '\0', '|', ' ', '/', '*']), "{}", text);
            }
        }
    }

    #[test]
    fn ids_are_those_of_the_pattern(id in prop_oneof!["[a-z][a-z0-9-]{0,33}", any::<String>()]) {
        let mut chars = id.chars();
        let legal = chars.next().is_some_and(|c| c.is_ascii_lowercase())
            && chars.all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'))
            && id.len() <= 32;
        let text = format!("{{\"servers\":{{{}:{{\"command\":\"/x\"}}}}}}", serde_json::to_string(&id).unwrap());
        prop_assert_eq!(read(&text).is_ok_and(|read| read.servers.contains_key(&id)), legal);
    }

    #[test]
    fn errors_never_show_a_value(secret in "SECRET[a-z,= /]{8}", key in prop::sample::select(ENTRY_KEYS)) {
        for text in [format!("\"{key}\":\"{secret}\""), format!("\"{key}\":[\"{secret}\",\"{secret}\",1]"),
            format!("\"{key}\":{{\"x\":\"{secret}\"}}"), format!("\"x\":\"{secret}\"")] {
            if let Err(error) = with(&text) {
                prop_assert!(!error.to_string().contains("SECRET"), "{}", error);
            }
        }
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = Registry::parse(&bytes, "f");
    }
}

#[test]
fn agents_stand_beside_servers_under_ids_of_their_own() {
    let registry = Registry::parse(
        br#"{"servers":{"s":{"command":"/bin/s"}},
            "agents":{"a":{"command":"/bin/a","jail":{"path":"/r/a"},"model":{},"users":["op"]},
                      "b":{"command":"/bin/b","stdin":"pipe","disabled":true}}}"#,
        "r",
    )
    .unwrap();
    let (a, b) = (&registry.agents["a"], &registry.agents["b"]);
    assert_eq!(
        (a.stdin, a.loopback, a.disabled),
        (Stdin::Null, true, false)
    );
    assert!(a.chooses_model && !b.chooses_model);
    assert_eq!(
        (b.stdin, b.loopback, b.disabled),
        (Stdin::Pipe, false, true)
    );
    for (agents, wanted) in [
        (r#""s":{"command":"/bin/a"}"#, "a server has this id"),
        (r#""A":{"command":"/bin/a"}"#, "an agent's id"),
        (r#""a":{}"#, "command"),
        (r#""a":{"url":"https://a.example"}"#, "url"),
        (r#""a":{"command":"a"}"#, "absolute path"),
        (r#""a":{"command":"/bin/a","stdin":"tty"}"#, "null, pipe"),
        (
            r#""a":{"command":"/bin/a","isolation":"user"}"#,
            "isolation",
        ),
        (
            r#""a":{"command":"/bin/a","model":{},"jail":{"path":"/r/a","ip4":"inherit"}}"#,
            "leave out ip4",
        ),
    ] {
        let text = format!(r#"{{"servers":{{"s":{{"command":"/bin/s"}}}},"agents":{{{agents}}}}}"#);
        let error = Registry::parse(text.as_bytes(), "r")
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{agents}: {error}");
    }
}

#[test]
fn each_account_of_an_entry_is_a_server_of_its_own() {
    let text = |home: &str| {
        format!(
            r#"{{"servers":{{"gh":{{"command":"/bin/gh","args":["-v"],"jail":{{"path":"/r/gh"}},"accounts":{{
                "work":{{"env":{{"T":{{"secret":"w"}}}}}},"home":{home}}}}},"plain":{{"command":"/bin/p"}}}}}}"#
        )
    };
    let home = r#"{"env":{"T":"h"},"disabled":true}"#;
    let registry = read(&text(home)).unwrap();
    assert_eq!(
        registry.servers.keys().collect::<Vec<_>>(),
        ["gh-home", "gh-work", "plain"]
    );
    let (work, home) = (&registry.servers["gh-work"], &registry.servers["gh-home"]);
    assert_eq!(
        (work.entry_id.as_str(), work.disabled, home.disabled),
        ("gh", false, true)
    );
    let command = work.command.as_ref().unwrap();
    assert_eq!(
        (command.args.as_slice(), command.env["T"].clone()),
        (
            ["-v".to_owned()].as_slice(),
            EntryValue::Secret("w".to_owned())
        )
    );
    assert_eq!(
        home.command.as_ref().unwrap().env["T"],
        EntryValue::Plain("h".to_owned())
    );
    assert_eq!(registry.servers["plain"].entry_id, "plain");
    assert_eq!(registry.of_entry("gh").count(), 2);
    assert_eq!(registry.of_entry("gh-work").count(), 1);
    // What is agreed to of one account is the same whatever becomes of another.
    assert_ne!(work.digest, home.digest);
    let changed = read(&text(r#"{"env":{"T":"other"}}"#)).unwrap();
    assert_eq!(changed.servers["gh-work"].digest, work.digest);
    assert_ne!(changed.servers["gh-home"].digest, home.digest);
    let more = read(&text("{}").replace("\"-v\"", "\"-q\"")).unwrap();
    assert_ne!(more.servers["gh-work"].digest, work.digest);
    // All are off with their entry.
    let off = read(&text("{}").replace("\"args\"", "\"disabled\":true,\"args\"")).unwrap();
    assert!(off.of_entry("gh").all(|(_, entry)| entry.disabled));
}

#[test]
fn accounts_that_could_be_taken_for_something_else_are_refused() {
    let entry = |accounts: &str| format!(r#""gh":{{"command":"/bin/gh","accounts":{accounts}}}"#);
    let long = format!(r#"{{"{}":{{}}}}"#, "a".repeat(30));
    for (servers, wanted) in [
        (
            entry("{}"),
            "servers.gh.accounts: must name at least one account",
        ),
        (entry("[]"), "must be an object"),
        (entry(r#"{"work":7}"#), "must be an object"),
        (entry(r#"{"Work":{}}"#), "an account's name"),
        (entry(r#"{"":{}}"#), "an account's name"),
        (entry(r#"{"-x":{}}"#), "an account's name"),
        (entry(r#"{"a_b":{}}"#), "an account's name"),
        (entry(&long), "at most 32 characters"),
        (
            entry(r#"{"work":{"command":"/bin/x"}}"#),
            "gh.accounts.work.command: an account has no command",
        ),
        (
            entry(r#"{"work":{"url":"https://x"}}"#),
            "an account has no url",
        ),
        (
            entry(r#"{"work":{"accounts":{}}}"#),
            "an account has no accounts",
        ),
        (entry(r#"{"work":{"envs":{}}}"#), "did you mean \"env\"?"),
        (entry(r#"{"work":{"env":{"1":"x"}}}"#), "a variable's name"),
        (
            entry(r#"{"work":{"args":[]}},"args":[]"#),
            "gh.accounts.work.args: args stands beside accounts too",
        ),
        (
            entry(r#"{"work":{}},"jail":{"path":"/r","user":"u"}"#),
            "this one user",
        ),
        (
            format!(
                r#"{},"gh-work":{{"command":"/x"}}"#,
                entry(r#"{"work":{}}"#)
            ),
            "servers.gh-work: an account of gh has the id gh-work, which an entry would have here",
        ),
        (
            format!(
                r#""gh-work":{{"command":"/x"}},{}"#,
                entry(r#"{"work":{}}"#)
            ),
            "an entry has the id gh-work, which an account of gh would have here",
        ),
        (
            format!(
                r#""gh-w":{{"command":"/x","accounts":{{"ork":{{}},"x":{{}}}}}},{}"#,
                entry(r#"{"w-x":{}}"#)
            ),
            "an account of gh-w has the id gh-w-x, which an account of gh would have here",
        ),
    ] {
        let error = read(&format!("{{\"servers\":{{{servers}}}}}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{servers}: {error}");
    }
    for agent in ["gh", "gh-work"] {
        let text = format!(
            r#"{{"servers":{{{}}},"agents":{{"{agent}":{{"command":"/a"}}}}}}"#,
            entry(r#"{"work":{}}"#)
        );
        assert!(
            read(&text)
                .unwrap_err()
                .to_string()
                .contains("a server has this id"),
            "{agent}"
        );
    }
    // One with a url blocks itself alone.
    let odd = read(
        r#"{"servers":{"a":{"url":"https://x","accounts":{"b":{"env":{}}}},"c":{"command":"/c"}}}"#,
    )
    .unwrap();
    assert!(
        odd.servers.contains_key("c") && odd.refused["a"].to_string().contains("a.accounts.b.env"),
        "{odd:?}"
    );
}
