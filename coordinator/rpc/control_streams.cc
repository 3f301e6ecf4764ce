// The streaming calls of ControlService.
#include <utility>
#include <vector>

#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/intake.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/rpc/streams.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kPage = 256;

bool IsEnded(const v1::RunStatus& run) {
  for (const RunState state : {RunState::kDone, RunState::kStopped, RunState::kFailed}) {
    if (run.state() == ToString(state)) return true;
  }
  return false;
}

// Pages of the store, in order. `fetch(after)` gives a page, `key(message)` what the next one comes
// after. Ends at the last page; with `follow`, when the run has ended (`run` empty: never).
template <class Message, class Fetch, class Key>
StatusOr<grpc::ServerWriteReactor<Message>*> StartPages(Shell* shell, const Caller& caller,
                                                        const std::string& run, bool follow,
                                                        uint64_t after, const Fetch& fetch,
                                                        const Key& key) {
  using Stream = FollowStream<Message>;
  LH_ASSIGN_OR_RETURN(Place place, shell->places().Take(caller, Use::kFollower));
  auto next = [shell, run, follow, after, fetch, key]() mutable -> typename Stream::Step {
    // Before the page is read: what came with the end must be in it.
    bool last = !follow;
    if (follow && !run.empty()) {
      const StatusOr<v1::RunStatus> status =
          shell->ReadStored([&](const Views& views) { return views.RunOf(run); });
      last = !status.ok() || IsEnded(*status);
    }
    StatusOr<std::vector<Message>> page = fetch(after);
    if (!page.ok()) return {.messages = {}, .more = false, .end = page.status()};
    if (page->empty()) {
      return {.messages = {},
              .more = false,
              .end = last ? std::optional(absl::OkStatus()) : std::nullopt};
    }
    after = key(page->back());
    return {.messages = *std::move(page), .more = true, .end = std::nullopt};
  };
  return Stream::Start(&shell->notifier(), std::move(place), std::move(next));
}

}  // namespace

grpc::ServerWriteReactor<v1::RunStatus>* ControlServiceImpl::WatchRun(
    Context* context, const v1::RunRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::RunStatus>;
  using Stream = FollowStream<v1::RunStatus>;
  const auto body = [&](const Caller& caller) -> StatusOr<Reactor*> {
    LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kFollower));
    LH_ASSIGN_OR_RETURN(const v1::RunStatus first,
                        gate_->StatusOfOwnRun(caller, *context, Call::kWatchRun, request->run()));
    // By id from here on: the newest run of a name may become another one.
    auto next = [shell = shell_, id = first.run_id(),
                 sent = std::optional<uint64_t>()]() mutable -> Stream::Step {
      StatusOr<v1::RunStatus> run =
          shell->ReadStored([&](const Views& views) { return views.RunOf(id); });
      if (!run.ok()) return {.messages = {}, .more = false, .end = run.status()};
      Stream::Step step;
      if (IsEnded(*run)) step.end = absl::OkStatus();
      if (sent == run->sequence()) return step;
      sent = run->sequence();
      run->clear_plan();
      step.messages.push_back(*std::move(run));
      return step;
    };
    return Stream::Start(&shell_->notifier(), std::move(place), std::move(next));
  };
  return Serve<Reactor>(gate_, *context, Call::kWatchRun, body);
}

grpc::ServerWriteReactor<v1::Event>* ControlServiceImpl::ListEvents(
    Context* context, const v1::EventsRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::Event>;
  const auto body = [&](const Caller& caller) -> StatusOr<Reactor*> {
    std::string run;
    if (!request->run().empty()) {
      LH_ASSIGN_OR_RETURN(
          const v1::RunStatus found,
          gate_->StatusOfOwnRun(caller, *context, Call::kListEvents, request->run()));
      run = found.run_id();
    } else if (!MayAll(caller)) {
      return absl::PermissionDeniedError("the events of all runs are for admins; name a run");
    }
    return StartPages<v1::Event>(
        shell_, caller, run, request->follow(), 0,
        [store = &shell_->store(), run](uint64_t after) {
          return store->Events(run, after, kPage);
        },
        [](const v1::Event& event) { return event.sequence(); });
  };
  return Serve<Reactor>(gate_, *context, Call::kListEvents, body);
}

grpc::ServerWriteReactor<v1::LogEntry>* ControlServiceImpl::ListLogs(
    Context* context, const v1::LogsRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::LogEntry>;
  const auto body = [&](const Caller& caller) -> StatusOr<Reactor*> {
    LH_ASSIGN_OR_RETURN(const v1::RunStatus found,
                        gate_->StatusOfOwnRun(caller, *context, Call::kListLogs, request->run()));
    const RunId run(found.run_id());
    return StartPages<v1::LogEntry>(
        shell_, caller, run.value(), request->follow(), 0,
        [store = &shell_->store(), run](uint64_t after) { return store->Logs(run, after, kPage); },
        [](const v1::LogEntry& entry) { return entry.sequence(); });
  };
  return Serve<Reactor>(gate_, *context, Call::kListLogs, body);
}

grpc::ServerWriteReactor<v1::StepRecord>* ControlServiceImpl::ListSteps(
    Context* context, const v1::StepsRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::StepRecord>;
  const auto body = [&](const Caller& caller) -> StatusOr<Reactor*> {
    LH_ASSIGN_OR_RETURN(const v1::RunStatus found,
                        gate_->StatusOfOwnRun(caller, *context, Call::kListSteps, request->run()));
    const RunId run(found.run_id());
    const uint64_t first =
        request->has_after_step() ? std::max(request->after_step(), request->after_step() + 1) : 0;
    return StartPages<v1::StepRecord>(
        shell_, caller, run.value(), false, first,
        [store = &shell_->store(), run](uint64_t from) { return store->Steps(run, from, kPage); },
        [](const v1::StepRecord& step) { return step.step() + 1; });
  };
  return Serve<Reactor>(gate_, *context, Call::kListSteps, body);
}

}  // namespace longhaul::coordinator
