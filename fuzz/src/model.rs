//! What the model relay makes of bytes: a body that passes is the same after what is put into it,
//! and says nothing more to be put in; what an answer cost does not depend on the pieces that it
//! came in.

use colibri_model::{
    BodyFacts, Meter, ModelAllow, ModelApi, ModelPermissions, ModelRequestKind, read_body,
};

fn permits(allow: &[ModelAllow]) -> ModelPermissions {
    ModelPermissions {
        allow: allow.to_vec(),
        ..ModelPermissions::default()
    }
}

fn body(api: ModelApi, allow: &[ModelAllow], body: &[u8]) {
    let permitted = permits(allow);
    let Ok(facts) = read_body(api, ModelRequestKind::Generate, &permitted, body) else {
        return;
    };
    let (mut spliced, mut done) = (Vec::new(), 0);
    for (range, text) in &facts.splices {
        spliced.extend_from_slice(&body[done..range.start]);
        spliced.extend_from_slice(text.as_bytes());
        done = range.end;
    }
    spliced.extend_from_slice(&body[done..]);
    let again = read_body(api, ModelRequestKind::Generate, &permitted, &spliced)
        .expect("what is put in is right");
    assert_eq!(
        again,
        BodyFacts {
            splices: Vec::new(),
            ..facts
        }
    );
    // What needs nothing passes where more is allowed, too.
    assert!(
        read_body(
            api,
            ModelRequestKind::Generate,
            &permits(&ModelAllow::ALL),
            body
        )
        .is_ok()
    );
}

fn cost(api: ModelApi, is_stream: bool, ended: bool, answer: &[u8], size: usize) {
    let count = |size: usize| {
        let mut meter = Meter::new(api, is_stream);
        answer.chunks(size).for_each(|part| meter.feed(part));
        meter.end(ended)
    };
    assert_eq!(count(size), count(answer.len().max(1)));
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let api = ModelApi::ALL[usize::from(how & 3)];
    match how & 4 {
        0 => body(api, if how & 8 == 0 { &[] } else { &ModelAllow::ALL }, data),
        _ => cost(
            api,
            how & 8 == 0,
            how & 16 == 0,
            data,
            1 + usize::from(how >> 5),
        ),
    }
}
