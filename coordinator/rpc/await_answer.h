// Waits on a thread of its own for an answer of the state machine.
#pragma once

#include <future>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/rpc/shell.h"

namespace longhaul::coordinator {

// `ask(done)` asks the shell, and returns the call's id. kDeadlineExceeded: no answer came in time.
template <class Reply, class Ask>
StatusOr<Reply> AwaitAnswer(Shell* shell, Deadline deadline, const Ask& ask) {
  const auto answer = std::make_shared<std::promise<StatusOr<Reply>>>();
  std::future<StatusOr<Reply>> future = answer->get_future();
  const RequestId id =
      ask([answer](StatusOr<Reply> reply) { answer->set_value(std::move(reply)); });
  if (future.wait_until(deadline.time().ToChrono()) != std::future_status::ready &&
      shell->Drop(id)) {
    return absl::DeadlineExceededError("the coordinator or its workers did not answer in time");
  }
  // It has come, or is being given.
  return future.get();
}

}  // namespace longhaul::coordinator
