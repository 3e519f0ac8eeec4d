//! What goes in comes out: id, type, key, tenant, headers, content type.

use posthaste_core::Event;

use super::scene::{Scene, event, message};
use crate::suite::case::cases;

cases![Scene;
    port_p7_every_attribute_survives,
    port_p7_what_is_absent_stays_absent,
    port_p7_key_and_tenant_survive_character_by_character,
    port_p7_header_values_survive_character_by_character,
    port_p7_a_content_type_with_parameters_survives,
    port_p7_the_longest_fields_survive,
    port_p7_a_payload_goes_in_place_of_the_body,
    report_132_the_same_message_again_is_identical,
];

async fn port_p7_every_attribute_survives(scene: &Scene) {
    let sent = event()
        .key("customer-1")
        .tenant("acme")
        .header("x-origin", "shop")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("tracestate", "vendor=1");
    let message = scene.message(sent.clone());
    scene.deliver(vec![message.clone()]).await;
    let received = scene.arrived(1).await.remove(0);
    assert_eq!(received.id, message.id.to_string());
    assert_eq!(received.event_type, sent.event_type);
    assert_eq!((received.key, received.tenant), (sent.key, sent.tenant));
    assert_eq!(received.headers, sent.headers);
    assert_eq!((received.content_type, received.body), (sent.content_type, sent.body));
}

async fn port_p7_what_is_absent_stays_absent(scene: &Scene) {
    let received = scene.carry(event()).await;
    assert_eq!((received.key, received.tenant), (None, None));
    assert!(received.headers.is_empty(), "{:?}", received.headers);
}

async fn port_p7_key_and_tenant_survive_character_by_character(scene: &Scene) {
    for (n, text) in TEXTS.into_iter().enumerate() {
        scene.deliver(vec![scene.message(event().key(text).tenant(text))]).await;
        let received = scene.arrived(n + 1).await.remove(n);
        assert_eq!((received.key.as_deref(), received.tenant.as_deref()), (Some(text), Some(text)));
    }
}

async fn port_p7_header_values_survive_character_by_character(scene: &Scene) {
    for (n, text) in TEXTS.into_iter().enumerate() {
        scene.deliver(vec![scene.message(event().header("x-text", text))]).await;
        let received = scene.arrived(n + 1).await.remove(n);
        assert_eq!(received.headers.get("x-text").map(String::as_str), Some(text));
    }
}

const TEXTS: [&str; 5] = ["Zoë 😀 漢字", r#"it's "quoted" \ back"#, "100%25 %2F a+b", "{type}", "a,b;c=d&e"];

async fn port_p7_a_content_type_with_parameters_survives(scene: &Scene) {
    let content_type = "text/plain; charset=utf-8";
    let received = scene.carry(Event::new("note", content_type, "Zoë")).await;
    assert_eq!((received.content_type.as_str(), received.body), (content_type, Some("Zoë".into())));
}

async fn port_p7_the_longest_fields_survive(scene: &Scene) {
    let key = "k".repeat(Event::MAX_KEY);
    let tenant = "t".repeat(Event::MAX_TENANT);
    let received = scene.carry(event().key(key.clone()).tenant(tenant.clone())).await;
    assert_eq!((received.key, received.tenant), (Some(key), Some(tenant)));
}

async fn port_p7_a_payload_goes_in_place_of_the_body(scene: &Scene) {
    let mut message = scene.message(Event::new("order.placed", "text/plain", "the row's own"));
    message.payload = Some(r#"{"id":9007199254740993}"#.into());
    scene.deliver(vec![message]).await;
    let received = scene.arrived(1).await.remove(0);
    assert_eq!(received.body, Some(r#"{"id":9007199254740993}"#.into()));
    assert_eq!(received.content_type, "application/json");
}

async fn report_132_the_same_message_again_is_identical(scene: &Scene) {
    let sent = event().key("k").tenant("t").header("x-h", "v");
    let first = scene.message(sent);
    scene.deliver(vec![first.clone()]).await;
    scene.deliver(vec![first.clone()]).await;
    // And once more by a relay that has taken over.
    scene.transport().close().await;
    let successor = scene.destination.open();
    let again = successor.transport.publish(vec![first], super::scene::AMPLE).await;
    successor.transport.close().await;
    assert_eq!(again, [Ok(())]);
    let copies = if scene.harness.facts().deduplicates { 1 } else { 3 };
    let received = scene.arrived(copies).await;
    assert!(received.iter().all(|copy| *copy == received[0]), "{received:#?}");
    let other = message(&scene.target, event());
    assert_ne!(other.id.to_string(), received[0].id);
}
