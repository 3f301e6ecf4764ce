// What an executor hears: how it waits, and what becomes of each event.
#include <algorithm>
#include <utility>
#include <variant>

#include "base/overloaded.h"
#include "worker/pipeline/executor.h"
#include "worker/pipeline/tied_exchange.h"

namespace longhaul::worker {
namespace {

// A neighbour that says nothing is found by its link (peer_timeout) and an abort by the session, so
// this only bounds a wait that nothing should outlive.
constexpr absl::Duration kLongestWait = absl::Hours(24);
constexpr absl::Duration kAfterGoodbye = absl::Seconds(10);

bool Orderly(const PeerGone& gone) {
  return gone.reason.ok();
}

}  // namespace

Status Executor::WaitForEvent(v1::Span::Kind why) {
  return WaitForEvent(
      why, why == v1::Span::WAIT_INPUT ? WorkAtHand::Wait::kInput : WorkAtHand::Wait::kGradient);
}

Status Executor::WaitForEvent(v1::Span::Kind why, WorkAtHand::Wait wait) {
  if (next_) {
    // Callers loop: they check their condition again after events and after work of the next step.
    std::deque<PipelineEvent> events = events_->TakeAll();
    if (!events.empty()) return HandleAll(std::move(events));
    LH_ASSIGN_OR_RETURN(const bool has_run, RunWhatCan());
    if (has_run) return absl::OkStatus();
  }
  absl::Duration idle;
  work_->BeginWait(wait);
  const absl::Duration codec_before = options_.codec_thread->BusyTime();
  Status status = [&] {
    const ScopedSpan timer(&mark_, &idle, trace_.get(), why);
    return WaitForAnyEvent();
  }();
  // The codec thread's part of the wait is the codec's: a faster codec would shorten it.
  const absl::Duration codec = std::min(idle, options_.codec_thread->BusyTime() - codec_before);
  times_.wait_codec += codec;
  (why == v1::Span::WAIT_INPUT ? times_.wait_input : times_.wait_gradient) += idle - codec;
  return status;
}

Status Executor::WaitForAnyEvent() {
  // Links stay open until every stage has finished. A neighbour that leaves earlier in good order
  // was told to, and this stage will be told as well: it waits only a short time for that.
  auto events = events_->WaitForAny(Deadline::After(gone_ ? kAfterGoodbye : kLongestWait));
  if (!events.empty()) return HandleAll(std::move(events));
  if (!gone_) return absl::DeadlineExceededError("nothing happened for a day");
  lost_edge_ = gone_->edge;
  return Unavailable("{} left before step {} was done", ToString(gone_->peer), step_.value());
}

Status Executor::HandleAll(std::deque<PipelineEvent> events) {
  for (PipelineEvent& event : events) LH_RETURN_IF_ERROR(Handle(event));
  return absl::OkStatus();
}

Status Executor::Handle(PipelineEvent& event) {
  return std::visit(Overloaded{
                        [&](TensorArrived& arrived) -> Status {
                          if (arrived.over == EdgeKind::kTied)
                            return tied_->Take(std::move(arrived), step_);
                          const auto key = std::pair{arrived.pass, arrived.slice};
                          const bool forward = arrived.direction == Direction::kForward;
                          PassUnderWay* const under_way = UnderWay(arrived.pass);
                          // A gradient answers an activation that was sent from here, so its pass
                          // must be under way.
                          if (!forward && under_way == nullptr) {
                            return InvalidArgument(
                                "a gradient of step {} while step {} is under way",
                                arrived.pass.step.value(), step_.value());
                          }
                          // An activation may be early, as the stage before may have begun the next
                          // step, but never late.
                          if (arrived.pass < (now_ ? now_->pass : Pass{step_})) {
                            return InvalidArgument("an activation of step {}, which is done",
                                                   arrived.pass.step.value());
                          }
                          (forward ? inputs_ : gradients_)[key] = std::move(arrived.tensor);
                          if (under_way == nullptr) return absl::OkStatus();
                          if (!forward) {
                            under_way->policy.GradientReady(arrived.slice);
                            return absl::OkStatus();
                          }
                          under_way->policy.InputReady(arrived.slice);
                          if (now_ && under_way == &*now_) LetGradientsLeave();
                          return absl::OkStatus();
                        },
                        [&](TensorDoubted& doubted) -> Status { return Handle(doubted); },
                        [&](ActivationTaken& taken) -> Status {
                          // The next stage takes the last activations after the pass has ended
                          // here.
                          if (!now_ || taken.pass != now_->pass) return absl::OkStatus();
                          if (!now_->policy.MayBeTaken(taken.slice)) {
                            return InvalidArgument(
                                "activation {} of the validation after step {} was taken, which is "
                                "not the one that follows",
                                taken.slice.microbatch.value(), step_.value());
                          }
                          now_->policy.OutputTaken(taken.slice);
                          return absl::OkStatus();
                        },
                        [&](PieceTaken&) -> Status {
                          tied_->NotePieceTaken();
                          return absl::OkStatus();
                        },
                        [&](DigestArrived& digest) -> Status { return tied_->Take(digest, step_); },
                        [&](NormArrived& norm) -> Status {
                          norm_ = norm;
                          return absl::OkStatus();
                        },
                        [&](StepControlArrived& control) -> Status {
                          control_ = control;
                          return absl::OkStatus();
                        },
                        [&](SampleRoundArrived& round) -> Status {
                          // The first stage asks for one round more at most, by the run file.
                          if (rounds_arrived_.size() > wire::kMostSampleRounds) {
                            return absl::InvalidArgumentError("too many rounds of samples");
                          }
                          rounds_arrived_.push_back(std::move(round));
                          return absl::OkStatus();
                        },
                        [&](SampledTokensArrived& sampled) -> Status {
                          sampled_ = std::move(sampled);
                          return absl::OkStatus();
                        },
                        [&](SamplesRequested& asked) -> Status { return Handle(asked); },
                        [&](ReplicaSaid& said) -> Status {
                          const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kReplicas);
                          return options_.exchange->Take(std::move(said));
                        },
                        [&](ReplicaAgrees& said) -> Status { return Handle(said); },
                        // Only wakes the thread, which then asks again whether the merge can end.
                        [&](MergeReady&) -> Status { return absl::OkStatus(); },
                        [&](PeerGone& gone) -> Status {
                          gone_ = std::move(gone);
                          if (Orderly(*gone_)) return absl::OkStatus();
                          lost_edge_ = gone_->edge;
                          return Unavailable("lost the link to {}: {}", ToString(gone_->peer),
                                             Message(gone_->reason));
                        },
                        [&](Failed& failed) -> Status { return failed.reason; },
                        [&](StopRequested&) -> Status {
                          stop_requested_ = true;
                          return absl::OkStatus();
                        },
                        [&](RetuneRequested& retune) -> Status {
                          if (retuned_ && retuned_->first == retune.id) {
                            ReportRetuned();  // the coordinator asks again if the answer was lost
                          } else {
                            retune_ = retune;
                          }
                          return absl::OkStatus();
                        },
                        [&](AbortRequested& abort) -> Status {
                          return absl::CancelledError(std::string(Message(abort.reason)));
                        },
                    },
                    event);
}

}  // namespace longhaul::worker
