// Decides whether and when a request that failed is sent again. Errors of the code kUnavailable may
// pass; no other error is tried again.
//
//   Retries retries(patience, call);
//   while (true) {
//     const Status sent = SendOnce();
//     if (sent.ok()) break;
//     LH_RETURN_IF_ERROR(retries.Wait(sent));
//   }
#pragma once

#include <functional>
#include <optional>

#include "absl/time/time.h"
#include "base/http/client.h"
#include "base/status.h"

namespace longhaul::http {

struct Patience {
  // Attempts without progress until the error is returned, the first one included. At least 1.
  int attempts = 8;
  // Pauses double from the first to the longest one. Each is cut short at random by up to half, so
  // that many clients do not come back at the same moment.
  absl::Duration first_pause = absl::Milliseconds(500);
  absl::Duration longest_pause = absl::Seconds(30);
  // A server that wants a longer pause (Retry-After) is not waited for.
  absl::Duration longest_retry_after = absl::Minutes(5);
  // Waits in place of the clock, in tests.
  std::function<void(absl::Duration)> sleep = {};
};

// Attaches the pause that the server asked for to an error, and reads it back.
Status WithRetryAfter(Status error, absl::Duration pause);
std::optional<absl::Duration> RetryAfterOf(const Status& error);

// For one thread.
class Retries {
 public:
  // Both must outlive the object.
  Retries(const Patience& patience, const Call& call) : patience_(patience), call_(call) {}

  // Pauses, then returns OK: send the request again. Otherwise returns the error to give up with:
  // `error` itself, or kCancelled or kDeadlineExceeded by the call.
  Status Wait(const Status& error);
  // The last attempt brought something, so attempts are counted anew.
  void Progress() { failed_ = 0; }

 private:
  const Patience& patience_;
  const Call& call_;
  int failed_ = 0;
};

}  // namespace longhaul::http
