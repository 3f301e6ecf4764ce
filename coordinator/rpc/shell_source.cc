#include "coordinator/rpc/shell_source.h"

#include <future>

namespace longhaul::coordinator {
namespace {

// So many steps back there is one that every stage has finished.
constexpr uint32_t kTracedSteps = 3;

// Asks the state machine and waits for its answer. kDeadlineExceeded: none came in time.
template <class Asked>
StatusOr<typename Asked::Reply> Wait(Shell* shell, Deadline deadline, Asked asked) {
  using Reply = StatusOr<typename Asked::Reply>;
  const auto answer = std::make_shared<std::promise<Reply>>();
  std::future<Reply> future = answer->get_future();
  const RequestId id =
      shell->Ask(std::move(asked), [answer](Reply reply) { answer->set_value(std::move(reply)); });
  if (future.wait_until(deadline.time().ToChrono()) != std::future_status::ready &&
      shell->Drop(id)) {
    return absl::DeadlineExceededError("the coordinator or its workers did not answer in time");
  }
  // It has come, or is being given.
  return future.get();
}

}  // namespace

StatusOr<v1::CheckpointsReply> ShellSource::Checkpoints(const std::string& run, Deadline deadline) {
  return Wait(shell_, deadline, event::CheckpointsAsked{.run = run});
}

StatusOr<v1::TraceReply> ShellSource::Trace(const std::string& run, Deadline deadline) {
  return Wait(shell_, deadline, event::TraceAsked{.run = run, .steps = kTracedSteps});
}

}  // namespace longhaul::coordinator
