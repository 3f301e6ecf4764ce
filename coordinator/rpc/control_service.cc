#include "coordinator/rpc/control_service.h"

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/rpc/intake.h"
#include "coordinator/rpc/later_call.h"
#include "coordinator/rpc/send_blob.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/rpc/submit_check.h"
#include "coordinator/rpc/upload.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;

// A call that the state answers. Ends at once when the caller goes away.
template <class Reply>
class WaitingCall : public Unary {
 public:
  // `ask(done)` asks the shell. gRPC calls neither OnCancel nor OnDone before the service's method
  // has returned, so the answer may come before the id is known here.
  template <class Ask>
  static Unary* Start(Shell* shell, Place place, Reply* reply, const Ask& ask) {
    auto* call = new WaitingCall(shell, std::move(place));
    call->id_ = ask([call, reply](StatusOr<Reply> answer) {
      if (answer.ok()) *reply = std::move(*answer);
      call->Finish(ToGrpc(answer.status()));
    });
    return call;
  }

  void OnCancel() override {
    if (shell_->Drop(id_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  WaitingCall(Shell* shell, Place place) : shell_(shell), place_(std::move(place)) {}

  Shell* const shell_;
  const Place place_;
  RequestId id_;
};

// For the audit log: what a call does. Empty: nothing that is noted.
struct Noted {
  std::string_view action = {};
  std::string object = {};
};

// Wraps `done`, so that the answer is noted, too.
template <class Done>
auto NoteAnswer(const Gate* gate, const Context& context, const Caller& caller, Noted noted,
                Done done) {
  return [gate, &context, caller, noted = std::move(noted),
          done = std::move(done)](auto answer) mutable {
    // Before the answer, after which gRPC may destroy the context.
    if (!noted.action.empty()) {
      gate->Note(caller, context, noted.action, noted.object, answer.status());
    }
    done(std::move(answer));
  };
}

template <class Asked>
StatusOr<Unary*> AskState(const Gate* gate, Shell* shell, const Context& context,
                          const Caller& caller, Asked asked, typename Asked::Reply* reply,
                          Noted noted = {}) {
  LH_ASSIGN_OR_RETURN(Place place, shell->places().Take(caller, Use::kCall));
  return WaitingCall<typename Asked::Reply>::Start(shell, std::move(place), reply, [&](auto done) {
    return shell->Ask(std::move(asked),
                      NoteAnswer(gate, context, caller, std::move(noted), std::move(done)));
  });
}

// The submissions of a member are checked one after the other, so that its large lists keep no
// thread from others.
std::string QueueOf(const Caller& caller, const Context* context) {
  return caller.member ? "of " + caller.member->name
                       : fmt::format("call {}", static_cast<const void*>(context));
}

Nameable NameableBy(const Caller& caller, OwnBlobs* own_blobs) {
  return {MayAll(caller), own_blobs->Of(caller), own_blobs->lists()};
}

// Asks for a report of a run that must be the caller's own.
template <class Asked>
Unary* AskOfRun(Gate* gate, Shell* shell, Context* context, Call call, Asked asked,
                typename Asked::Reply* reply, std::string_view action = "") {
  return Serve<Unary>(gate, *context, call, [&](const Caller& caller) -> StatusOr<Unary*> {
    LH_ASSIGN_OR_RETURN(asked.run, gate->OwnRun(caller, *context, call, asked.run));
    Noted noted{action, asked.run};
    return AskState(gate, shell, *context, caller, std::move(asked), reply, std::move(noted));
  });
}

// Asks for a change of a run that must be the caller's own. A call that was made before gets its
// answer (coordinator/state/once.h), even if the run is gone or another one has its name.
template <class Request, class Asked>
Unary* ChangeRun(Gate* gate, Shell* shell, Context* context, Call call, const Request& request,
                 Asked asked, typename Asked::Reply* reply, std::string_view action) {
  return Serve<Unary>(gate, *context, call, [&](const Caller& caller) -> StatusOr<Unary*> {
    LH_RETURN_IF_ERROR(AdmitRequestId(request.request_id()));
    asked.run = request.run();
    if (!request.request_id().empty()) {
      asked.once = {.owner = caller.member ? caller.member->name : "",
                    .id = request.request_id(),
                    .asked_sha256 = Sha256WithoutId(request)};
      asked.once.only_again = shell->Read(
          [&](const Views& views) { return views.KnowsCall(asked.once.owner, asked.once.id); });
    }
    if (!asked.once.only_again) {
      LH_ASSIGN_OR_RETURN(asked.run, gate->OwnRun(caller, *context, call, asked.run));
    }
    Noted noted{action, asked.run};
    return AskState(gate, shell, *context, caller, std::move(asked), reply, std::move(noted));
  });
}

}  // namespace

Unary* ControlServiceImpl::Info(Context* context, const v1::InfoRequest*, v1::InfoReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kInfo, [&](const Caller&) {
    reply->set_version(version_);
    reply->set_workers(
        static_cast<uint32_t>(shell_->Read([](const Views& views) { return views.Connected(); })));
    if (leads_) *reply->mutable_leadership() = leads_();
    return absl::OkStatus();
  });
}

Unary* ControlServiceImpl::MissingBlobs(Context* context, const v1::MissingBlobsRequest* request,
                                        v1::MissingBlobsReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kMissingBlobs, [&](const Caller& caller) -> Status {
    if (request->sha256_size() > kMaxBlobsAsked) {
      return InvalidArgument("expected at most {} hashes in a question, got {}", kMaxBlobsAsked,
                             request->sha256_size());
    }
    // A blob that only other members have sent counts as missing.
    const OwnBlobs::Test own = own_blobs_->Of(caller);
    for (const std::string& sha256 : request->sha256()) {
      if (own(sha256) && blobs_->Claim(sha256)) {
        own_blobs_->Claimed(caller, sha256);
      } else {
        reply->add_sha256(sha256);
      }
    }
    return absl::OkStatus();
  });
}

grpc::ServerReadReactor<v1::UploadChunk>* ControlServiceImpl::UploadBlob(Context* context,
                                                                         v1::UploadReply*) {
  using Reactor = grpc::ServerReadReactor<v1::UploadChunk>;
  return Serve<Reactor>(
      gate_, *context, Call::kUploadBlob, [&](const Caller& caller) -> StatusOr<Reactor*> {
        LH_RETURN_IF_ERROR(shell_->HasRoom());
        LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kUpload));
        // Held as long as the call, and what it holds with it.
        const auto promise = std::make_shared<std::shared_ptr<const void>>();
        return StartUpload(blobs_, shell_,
                           {.place = std::move(place),
                            .may_come = [this, caller, promise](const std::string& sha256,
                                                                uint64_t bytes) -> Status {
                              LH_ASSIGN_OR_RETURN(*promise,
                                                  own_blobs_->Promise(caller, sha256, bytes));
                              return absl::OkStatus();
                            },
                            .may_skip = own_blobs_->Of(caller),
                            .done =
                                [this, caller, promise](const std::string& sha256, uint64_t bytes) {
                                  own_blobs_->Uploaded(caller, sha256, bytes);
                                  promise->reset();  // from here on the bytes count as sent
                                }});
      });
}

Unary* ControlServiceImpl::Submit(Context* context, const v1::SubmitRequest* request,
                                  v1::SubmitReply* reply) {
  using Waiting = LaterCall<v1::SubmitReply>;
  return Serve<
      Unary>(gate_, *context, Call::kSubmit, [&](const Caller& caller) -> StatusOr<Unary*> {
    LH_RETURN_IF_ERROR(shell_->HasRoom());
    LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kCall));
    const auto ask = [this, context, request, caller](Waiting::Done done) -> StatusOr<RequestId> {
      LH_ASSIGN_OR_RETURN(RunSpec spec,
                          CheckSubmit(*request, *blobs_, NameableBy(caller, own_blobs_)));
      LH_RETURN_IF_ERROR(own_blobs_->MayName(caller, spec));
      const std::string owner = caller.member ? caller.member->name : "";
      auto noted = [gate = gate_, context, caller, name = spec.name,
                    done = std::move(done)](StatusOr<v1::SubmitReply> answer) {
        gate->Note(caller, *context, "submit", answer.ok() ? answer->run_id() : name,
                   answer.status());
        done(std::move(answer));
      };
      return shell_->Submit(std::move(spec), *request, {owner, MayAll(caller)}, std::move(noted));
    };
    return Waiting::Start(shell_, std::move(place), QueueOf(caller, context), reply, ask);
  });
}

Unary* ControlServiceImpl::PlanRun(Context* context, const v1::SubmitRequest* request,
                                   v1::PlanReply* reply) {
  using Waiting = LaterCall<v1::PlanReply>;
  return Serve<Unary>(
      gate_, *context, Call::kPlanRun, [&](const Caller& caller) -> StatusOr<Unary*> {
        LH_RETURN_IF_ERROR(shell_->HasRoom());
        LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kCall));
        const auto ask = [this, request, caller](Waiting::Done done) -> StatusOr<RequestId> {
          LH_ASSIGN_OR_RETURN(RunSpec spec,
                              CheckPlan(*request, *blobs_, NameableBy(caller, own_blobs_)));
          return shell_->PlanRun(std::move(spec), *request, std::move(done));
        };
        return Waiting::Start(shell_, std::move(place), QueueOf(caller, context), reply, ask);
      });
}

Unary* ControlServiceImpl::StopRun(Context* context, const v1::StopRequest* request,
                                   v1::StopReply* reply) {
  return ChangeRun(gate_, shell_, context, Call::kStopRun, *request,
                   event::StopAsked{.now = request->now()}, reply, "stop");
}

Unary* ControlServiceImpl::SetReplicas(Context* context, const v1::ReplicasRequest* request,
                                       v1::ReplicasReply* reply) {
  return ChangeRun(gate_, shell_, context, Call::kSetReplicas, *request,
                   event::ReplicasAsked{.replicas = request->replicas()}, reply, "replicas");
}

Unary* ControlServiceImpl::ListCheckpoints(Context* context, const v1::CheckpointsRequest* request,
                                           v1::CheckpointsReply* reply) {
  event::CheckpointsAsked asked{.run = request->run(), .verify = request->verify()};
  if (request->has_gather_step()) asked.gather_step = request->gather_step();
  return AskOfRun(gate_, shell_, context, Call::kListCheckpoints, std::move(asked), reply,
                  request->has_gather_step() ? "export" : "");
}

grpc::ServerWriteReactor<v1::BlobChunk>* ControlServiceImpl::FetchBlob(
    Context* context, const v1::FetchBlobRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::BlobChunk>;
  return Serve<Reactor>(
      gate_, *context, Call::kFetchBlob, [&](const Caller& caller) -> StatusOr<Reactor*> {
        LH_ASSIGN_OR_RETURN(const MayBe where, gate_->MayFetch(caller, request->sha256()));
        LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kFetch));
        return SendBlob(where.blob ? blobs_ : nullptr, where.copy ? copies_ : nullptr, *request,
                        std::move(place));
      });
}

Unary* ControlServiceImpl::RemoveRun(Context* context, const v1::RemoveRunRequest* request,
                                     v1::RemoveRunReply* reply) {
  return ChangeRun(gate_, shell_, context, Call::kRemoveRun, *request, event::RemoveAsked{}, reply,
                   "rm");
}

Unary* ControlServiceImpl::CollectGarbage(Context* context,
                                          const v1::CollectGarbageRequest* request,
                                          v1::CollectGarbageReply* reply) {
  return Serve<Unary>(
      gate_, *context, Call::kCollectGarbage, [&](const Caller& caller) -> StatusOr<Unary*> {
        return AskState(gate_, shell_, *context, caller, event::GarbageAsked{.ask = *request},
                        reply, {request->dry_run() ? "" : "gc", ""});
      });
}

Unary* ControlServiceImpl::TraceRun(Context* context, const v1::TraceRequest* request,
                                    v1::TraceReply* reply) {
  return AskOfRun(gate_, shell_, context, Call::kTraceRun,
                  event::TraceAsked{.run = request->run(), .steps = request->steps()}, reply);
}

Unary* ControlServiceImpl::SampleRun(Context* context, const v1::SampleRequest* request,
                                     v1::SampleReply* reply) {
  return AskOfRun(gate_, shell_, context, Call::kSampleRun,
                  event::SamplesAsked{.run = request->run(), .wanted = request->wanted()}, reply);
}

Unary* ControlServiceImpl::ListRuns(Context* context, const v1::ListRunsRequest* request,
                                    v1::ListRunsReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kListRuns, [&](const Caller& caller) {
    Views::Wanted wanted;
    if (!MayAll(caller)) wanted.owner = caller.member->name;
    if (request->has_most_ended()) wanted.most_ended = request->most_ended();
    Views::RunList list =
        shell_->ReadStored([&](const Views& views) { return views.ListRuns(wanted); });
    // If not all runs fit into a message, the oldest are left out.
    size_t bytes = 0;
    for (v1::RunStatus& run : list.runs) {
      if (!IsOwn(caller, run)) continue;
      bytes += run.ByteSizeLong() + 16;
      if (bytes > kMaxMessageBytes) {
        ++list.ended_left_out;
        continue;
      }
      *reply->add_runs() = std::move(run);
    }
    reply->set_ended_left_out(static_cast<uint32_t>(list.ended_left_out));
    return absl::OkStatus();
  });
}

Unary* ControlServiceImpl::GetRun(Context* context, const v1::RunRequest* request,
                                  v1::RunStatus* reply) {
  return Serve<Unary>(gate_, *context, Call::kGetRun, [&](const Caller& caller) -> Status {
    LH_ASSIGN_OR_RETURN(*reply,
                        gate_->StatusOfOwnRun(caller, *context, Call::kGetRun, request->run()));
    return absl::OkStatus();
  });
}

Unary* ControlServiceImpl::ListWorkers(Context* context, const v1::ListWorkersRequest*,
                                       v1::ListWorkersReply* reply) {
  return Serve<Unary>(gate_, *context, Call::kListWorkers, [&](const Caller&) {
    for (v1::WorkerStatus& worker :
         shell_->Read([&](const Views& views) { return views.Workers(Now()); })) {
      *reply->add_workers() = std::move(worker);
    }
    for (v1::MeasuredLink& link :
         shell_->Read([&](const Views& views) { return views.Links(Now()); })) {
      *reply->add_links() = std::move(link);
    }
    for (v1::RelayStatus& relay :
         shell_->Read([&](const Views& views) { return views.Relays(); })) {
      *reply->add_relays() = std::move(relay);
    }
    return absl::OkStatus();
  });
}

}  // namespace longhaul::coordinator
