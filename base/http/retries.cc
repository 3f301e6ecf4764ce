#include "base/http/retries.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <string>

namespace longhaul::http {
namespace {

constexpr const char* kRetryAfter = "longhaul/retry_after_ms";

double Random() {
  thread_local std::mt19937 random(std::random_device{}());
  return std::uniform_real_distribution<double>(0, 1)(random);
}

// In slices, so that a call that is given up ends soon.
Status SleepFor(absl::Duration pause, const Call& call) {
  const Deadline end = Deadline::After(pause);
  while (!end.Expired()) {
    LH_RETURN_IF_ERROR(call.Check());
    absl::SleepFor(std::min({end.Remaining(), call.deadline.Remaining(), absl::Milliseconds(100)}));
  }
  return call.Check();
}

}  // namespace

Status WithRetryAfter(Status error, absl::Duration pause) {
  error.SetPayload(kRetryAfter, absl::Cord(std::to_string(absl::ToInt64Milliseconds(pause))));
  return error;
}

std::optional<absl::Duration> RetryAfterOf(const Status& error) {
  const auto payload = error.GetPayload(kRetryAfter);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  int64_t milliseconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), milliseconds);
  return absl::Milliseconds(milliseconds);
}

Status Retries::Wait(const Status& error) {
  if (!absl::IsUnavailable(error)) return error;
  LH_RETURN_IF_ERROR(call_.Check());
  if (++failed_ >= patience_.attempts) return error;
  absl::Duration pause = patience_.first_pause;
  for (int i = 1; i < failed_ && pause < patience_.longest_pause; ++i) pause *= 2;
  pause = std::min(pause, patience_.longest_pause) * (1 - Random() / 2);
  if (const auto wanted = RetryAfterOf(error)) {
    if (*wanted > patience_.longest_retry_after) return error;
    pause = std::max(pause, *wanted);
  }
  if (pause >= call_.deadline.Remaining()) return error;
  if (!patience_.sleep) return SleepFor(pause, call_);
  patience_.sleep(pause);
  return call_.Check();
}

}  // namespace longhaul::http
