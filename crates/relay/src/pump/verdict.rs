//! What a failure means for one route of a row: the one place where classes become actions.

use std::time::Duration;

use posthaste_core::{Class, Failure, failure::Outcome};

use crate::settings::RetryPolicy;

/// Longest reason kept in a row.
const MAX_REASON: usize = 512;
/// Losses in a row of a message that was alone in flight, after which it is suspected itself.
pub(crate) const STRIKES: u32 = 3;
/// Tries from memory of a message that the target does not take while it takes others.
const TRIES: u32 = 10;
/// How long such a message is left alone.
const ASIDE: Duration = Duration::from_secs(30);
/// The longest wait of a row whose rendering fails.
const RENDER_CAP: u32 = 9;

/// What becomes of one route of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Sent again from memory; nothing is recorded.
    Again,
    /// Recorded and tried again later.
    Retry { counted: bool, due_in: Duration, reason: String },
    /// Never again.
    Dead { counted: bool, reason: String },
    /// Left alone.
    Leave { reason: String },
}

/// What a failed publication means for a row with so many counted attempts. `strikes` is how often
/// in a row the message was lost while it was alone in flight, this time included. See also [`again`].
pub(crate) fn on_failure(failure: &Failure, attempts: u32, strikes: u32, policy: &RetryPolicy) -> Verdict {
    let failed = attempts.saturating_add(1);
    let reason = |class: Class| cut(&format!("{}: {}", class.as_str(), failure.detail));
    let retry = |class| Verdict::Retry { counted: true, due_in: policy.backoff.after(failed), reason: reason(class) };
    let dead = |class| Verdict::Dead { counted: true, reason: reason(class) };
    match failure.class {
        Class::Transient if failure.outcome == Outcome::Lost && strikes >= STRIKES => {
            if failed >= policy.max_attempts {
                dead(Class::Unknown)
            } else {
                retry(Class::Unknown)
            }
        }
        Class::Transient => Verdict::Again,
        Class::Permanent if failed >= policy.permanent_attempts => dead(Class::Permanent),
        Class::Permanent => retry(Class::Permanent),
        Class::Unknown if failed >= policy.max_attempts => dead(Class::Unknown),
        Class::Unknown => retry(Class::Unknown),
        Class::Misrouted if failed >= misrouted_attempts(policy) => dead(Class::Misrouted),
        Class::Misrouted => retry(Class::Misrouted),
        Class::Defer => Verdict::Leave { reason: reason(Class::Defer) },
        Class::Render => on_render_failure(&failure.detail, attempts, policy),
    }
}

/// Whether a message that is to be sent again is put aside first, uncounted: what one queue of a target
/// does not take, or never confirms, must not stand in the way of what goes to the others. `tries` is how
/// often it was sent from memory, `strikes` how often in a row it had no answer while it was alone, and
/// `answers` whether the target confirmed others of the same batch.
pub(crate) fn again(failure: &Failure, tries: u32, strikes: u32, answers: bool) -> Verdict {
    let aside = match failure.outcome {
        Outcome::NotDelivered => tries >= TRIES,
        Outcome::NoAnswer => answers || strikes >= STRIKES,
        Outcome::Lost => false,
    };
    if !aside {
        return Verdict::Again;
    }
    let reason = cut(&format!("{}: {}", failure.class.as_str(), failure.detail));
    Verdict::Retry { counted: false, due_in: ASIDE, reason }
}

/// What a `when` or `payload` that failed means: retried for ever, never counted. `failures` is how
/// often in a row it failed in this process before.
pub(crate) fn on_render_failure(detail: &str, failures: u32, policy: &RetryPolicy) -> Verdict {
    Verdict::Retry {
        counted: false,
        due_in: policy.backoff.after(failures.saturating_add(1).min(RENDER_CAP + 1)),
        reason: cut(&format!("{}: {detail}", Class::Render.as_str())),
    }
}

/// The counted attempts after which a misrouted row has been tried for `misrouted_for`: the waits
/// between that many attempts add up to it by the database's clock.
fn misrouted_attempts(policy: &RetryPolicy) -> u32 {
    policy.backoff.failures_within(policy.misrouted_for).saturating_add(1).max(policy.max_attempts)
}

/// Cuts a reason to what a row holds, at a character's border, without control characters.
pub(crate) fn cut(reason: &str) -> String {
    let mut kept = String::with_capacity(reason.len().min(MAX_REASON));
    for character in reason.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if kept.len() + character.len_utf8() > MAX_REASON {
            break;
        }
        kept.push(character);
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verdict(class: Class, attempts: u32) -> Verdict {
        on_failure(&Failure::new(class, "why"), attempts, 0, &RetryPolicy::default())
    }

    fn is_counted_retry(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Retry { counted: true, .. })
    }

    #[test]
    fn decision_04_an_outage_is_never_counted() {
        for attempts in [0, 9, 1000, u32::MAX] {
            assert_eq!(verdict(Class::Transient, attempts), Verdict::Again);
        }
        let silent = Failure::no_answer("deadline");
        assert_eq!(on_failure(&silent, 0, 100, &RetryPolicy::default()), Verdict::Again);
    }

    #[test]
    fn decision_04_a_row_lost_three_times_alone_counts_as_unknown() {
        let (lost, policy) = (Failure::lost("channel closed"), RetryPolicy::default());
        assert_eq!(on_failure(&lost, 0, 2, &policy), Verdict::Again);
        assert!(is_counted_retry(&on_failure(&lost, 0, 3, &policy)));
        assert!(matches!(on_failure(&lost, 9, 3, &policy), Verdict::Dead { .. }));
    }

    #[test]
    fn decision_16_what_one_queue_does_not_take_is_put_aside_and_not_counted() {
        let uncounted = |verdict| matches!(verdict, Verdict::Retry { counted: false, .. });
        let (busy, silent) = (Failure::new(Class::Transient, "nack"), Failure::no_answer("deadline"));
        assert_eq!(again(&busy, TRIES - 1, 0, true), Verdict::Again);
        assert!(uncounted(again(&busy, TRIES, 0, false)));
        assert_eq!(again(&silent, 100, STRIKES - 1, false), Verdict::Again);
        assert!(uncounted(again(&silent, 1, STRIKES, false)) && uncounted(again(&silent, 1, 0, true)));
        assert_eq!(again(&Failure::lost("cut"), 100, 100, true), Verdict::Again);
    }

    #[test]
    fn report_084_permanent_is_final_at_once_and_unknown_at_the_tenth() {
        assert_eq!(verdict(Class::Permanent, 0), Verdict::Dead { counted: true, reason: "permanent: why".into() });
        assert!(is_counted_retry(&verdict(Class::Unknown, 8)));
        assert!(matches!(verdict(Class::Unknown, 9), Verdict::Dead { .. }));
    }

    #[test]
    fn decision_14_misrouted_is_final_only_after_an_hour_of_waits() {
        let policy = RetryPolicy::default();
        let attempts = (0..).find(|n| matches!(verdict(Class::Misrouted, *n), Verdict::Dead { .. })).unwrap();
        let waited: Duration = (1..=attempts).map(|n| policy.backoff.after(n)).sum();
        assert!(attempts >= 10 && waited >= Duration::from_secs(3600), "{attempts} {waited:?}");
    }

    #[test]
    fn decision_05_a_render_failure_is_never_counted_nor_final() {
        for failures in [0, 10, u32::MAX] {
            let verdict = on_render_failure("no such key", failures, &RetryPolicy::default());
            let Verdict::Retry { counted: false, due_in, .. } = verdict else { panic!("{verdict:?}") };
            assert!(due_in <= Duration::from_secs(300));
        }
        assert!(matches!(verdict(Class::Defer, 0), Verdict::Leave { .. }));
    }

    proptest! {
        #[test]
        fn dispatch_l12_reasons_fit_and_hold_no_control_characters(reason in ".{0,600}") {
            let kept = cut(&reason);
            prop_assert!(kept.len() <= MAX_REASON && !kept.chars().any(char::is_control));
        }
    }
}
