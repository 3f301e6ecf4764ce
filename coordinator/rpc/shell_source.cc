#include "coordinator/rpc/shell_source.h"

#include <utility>

#include "coordinator/rpc/await_answer.h"

namespace longhaul::coordinator {
namespace {

// So many steps back there is one that every stage has finished.
constexpr uint32_t kTracedSteps = 3;

template <class Asked>
StatusOr<typename Asked::Reply> Wait(Shell* shell, Deadline deadline, Asked asked) {
  return AwaitAnswer<typename Asked::Reply>(
      shell, deadline, [&](auto done) { return shell->Ask(std::move(asked), std::move(done)); });
}

}  // namespace

StatusOr<v1::CheckpointsReply> ShellSource::Checkpoints(const std::string& run, Deadline deadline) {
  return Wait(shell_, deadline, event::CheckpointsAsked{.run = run});
}

StatusOr<v1::TraceReply> ShellSource::Trace(const std::string& run, Deadline deadline) {
  return Wait(shell_, deadline, event::TraceAsked{.run = run, .steps = kTracedSteps});
}

}  // namespace longhaul::coordinator
