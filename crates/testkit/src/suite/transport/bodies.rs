//! Bodies arrive byte for byte, and NULL is not empty.

use bytes::Bytes;
use posthaste_core::{Class, Event, failure::Outcome};

use super::scene::{Scene, blob, event};
use crate::suite::case::cases;

cases![Scene;
    port_p7_bodies_survive_byte_for_byte,
    port_p7_report_069_json_is_never_reformatted,
    report_076_null_and_empty_are_two_things,
    port_p7_a_body_of_five_megabytes_survives,
    port_p6_a_body_over_the_limit_is_a_permanent_failure,
];

async fn port_p7_bodies_survive_byte_for_byte(scene: &Scene) {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let bodies: [Bytes; 5] = [
        Bytes::from_static(&[0xff, 0xfe, 0x80, 0x41]),
        all_bytes.into(),
        Bytes::from_static(b"\0"),
        Bytes::from_static(b"\n"),
        Bytes::from_static(b"a\r\nb\n"),
    ];
    for (n, body) in bodies.into_iter().enumerate() {
        scene.deliver(vec![scene.message(blob(body.clone()))]).await;
        assert_eq!(scene.arrived(n + 1).await[n].body, Some(body));
    }
}

async fn port_p7_report_069_json_is_never_reformatted(scene: &Scene) {
    let bodies = [
        r#"{"id":9007199254740993,"d":0.1000000000000000055511151231257827,"e":1e400}"#,
        "{\"b\" : 1,\n\t\"a\":1.0, \"a\":2}\n",
        r#"{"a":"x\u0000y","u":"\u003c\ud83d\ude00 é"}"#,
        r#" [ ] "#,
        // A plain INSERT may say JSON and hold none.
        "{",
        "",
    ];
    for (n, body) in bodies.into_iter().enumerate() {
        scene.deliver(vec![scene.message(Event::new("json", "application/json", body))]).await;
        let received = scene.arrived(n + 1).await.remove(n);
        assert_eq!((received.body, received.content_type.as_str()), (Some(body.into()), "application/json"));
    }
}

async fn report_076_null_and_empty_are_two_things(scene: &Scene) {
    let batch = [Event::tombstone("gone"), blob(Bytes::new()), blob("x")];
    for event in batch {
        scene.deliver(vec![scene.message(event)]).await;
    }
    let bodies: Vec<_> = scene.arrived(3).await.into_iter().map(|message| message.body).collect();
    assert_eq!(bodies, [None, Some(Bytes::new()), Some("x".into())]);
}

async fn port_p7_a_body_of_five_megabytes_survives(scene: &Scene) {
    let body: Bytes = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>().into();
    let received = scene.carry(blob(body.clone())).await;
    assert!(received.body == Some(body), "5 MB, byte for byte");
}

async fn port_p6_a_body_over_the_limit_is_a_permanent_failure(scene: &Scene) {
    let Some(limit) = scene.transport().capabilities().max_body else { return };
    let batch = vec![scene.message(event()), scene.message(blob(vec![b'x'; limit + 1])), scene.message(event())];
    let answers = scene.publish(batch).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let failure = answers[1].clone().expect_err("over the limit");
    assert_eq!((failure.class, failure.outcome), (Class::Permanent, Outcome::NotDelivered));
    scene.arrived(2).await;
}
