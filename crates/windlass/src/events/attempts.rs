//! Tries to write an event until it is written or refused, or it is time to turn to the next.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::fence::FenceClosed;

/// How long a try may take: one request that is never answered must not hold up all events.
const TRY: Duration = Duration::from_secs(15);
/// How long to go on while no server answers: a server that restarts is back by then. client-go's tries
/// take as long.
const RETRY_TIMEOUT: Duration = Duration::from_secs(120);
/// How often to try what the server fails at.
const TRIES: u32 = 4;
/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// What can be expected of another try.
#[derive(Debug, PartialEq)]
enum Outlook {
    /// Nothing.
    Final,
    /// The server fails, perhaps at this event only.
    Fails,
    /// The server is not there, or too busy.
    Away,
}

/// Tries until it is done, or until that is not to be expected any more.
pub(super) async fn persist<T, F>(mut attempt: impl FnMut() -> F) -> Result<(), kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let (begin, mut pause, mut tried) = (Instant::now(), PAUSES.0, 0);
    loop {
        tried += 1;
        let error = match timeout(TRY, attempt()).await {
            Ok(Ok(_)) => return Ok(()),
            // A try that failed had been carried out: names are not given twice.
            Ok(Err(kube::Error::Api(status))) if tried > 1 && status.reason == "AlreadyExists" => return Ok(()),
            Ok(Err(error)) => error,
            Err(elapsed) => kube::Error::Service(elapsed.into()),
        };
        let again = match outlook(&error) {
            Outlook::Final => false,
            Outlook::Fails => tried < TRIES,
            Outlook::Away => begin.elapsed() + pause < RETRY_TIMEOUT,
        };
        if !again {
            return Err(error);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn outlook(error: &kube::Error) -> Outlook {
    match error {
        kube::Error::Service(error) if error.is::<FenceClosed>() => Outlook::Final,
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => Outlook::Away,
        kube::Error::Api(status) => match status.code {
            429 | 502..=504 => Outlook::Away,
            500.. => Outlook::Fails,
            _ => Outlook::Final,
        },
        _ => Outlook::Fails,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn answer(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(kube::core::Status::failure("", reason).with_code(code).boxed())
    }

    fn cut() -> kube::Error {
        kube::Error::Service(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into())
    }

    /// Tries with these answers, the last of them for ever; how often, how long, and whether it is done.
    async fn run(answers: &[fn() -> Result<(), kube::Error>]) -> (u32, u64, bool) {
        let (begin, tried) = (Instant::now(), Cell::new(0));
        let done = persist(|| {
            let answer = answers[(tried.get() as usize).min(answers.len() - 1)];
            tried.set(tried.get() + 1);
            async move { answer() }
        });
        let done = done.await.is_ok();
        (tried.get(), begin.elapsed().as_secs(), done)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_restarts_is_waited_for() {
        let (tried, seconds, done) = run(&[|| Err(cut())]).await;
        assert!((100..=120).contains(&seconds) && !done, "{tried} tries in {seconds} s");
        for away in [|| Err(cut()), || Err(answer(503, "ServiceUnavailable")), || Err(answer(429, "TooManyRequests"))] {
            let (_, seconds, done) = run(&[away, away, away, away, away, away, away, away, || Ok(())]).await;
            assert!(seconds > 30 && done, "{seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_refuses_or_fails_at_is_left() {
        for refused in [|| Err(answer(422, "Invalid")), || Err(answer(409, "AlreadyExists"))] {
            assert_eq!(run(&[refused]).await, (1, 0, false));
        }
        assert_eq!(run(&[|| Err(kube::Error::Service(FenceClosed.into()))]).await, (1, 0, false));
        assert_eq!(run(&[|| Err(answer(500, "InternalError"))]).await, (4, 3, false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_when_it_is_tried_again_was_written() {
        assert_eq!(run(&[|| Err(cut()), || Err(answer(409, "AlreadyExists"))]).await, (2, 0, true));
        assert!(!run(&[|| Err(cut()), || Err(answer(409, "Conflict"))]).await.2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_is_never_answered_is_given_up() {
        let tried = Cell::new(0);
        let done = persist(|| {
            tried.set(tried.get() + 1);
            let silent = tried.get() == 1;
            async move { if silent { std::future::pending().await } else { Ok(()) } }
        });
        assert!(done.await.is_ok());
        assert_eq!(tried.get(), 2);
    }
}
