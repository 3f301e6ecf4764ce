#include "coordinator/rpc/shell_source.h"

#include <future>

namespace longhaul::coordinator {
namespace {

// So many steps back there is one that every stage has finished.
constexpr uint32_t kTracedSteps = 3;

// The answer of a call that the state machine answers on its own thread. `ask` gives the call's id.
template <class Reply, class Ask>
StatusOr<Reply> Wait(Shell* shell, Deadline deadline, const Ask& ask) {
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

}  // namespace

StatusOr<v1::CheckpointsReply> ShellSource::Checkpoints(const std::string& run, Deadline deadline) {
  v1::CheckpointsRequest request;
  request.set_run(run);
  return Wait<v1::CheckpointsReply>(shell_, deadline, [&](Shell::CheckpointsDone done) {
    return shell_->ListCheckpoints(request, std::move(done));
  });
}

StatusOr<v1::TraceReply> ShellSource::Trace(const std::string& run, Deadline deadline) {
  return Wait<v1::TraceReply>(shell_, deadline, [&](Shell::TraceDone done) {
    return shell_->TraceRun(run, kTracedSteps, std::move(done));
  });
}

}  // namespace longhaul::coordinator
