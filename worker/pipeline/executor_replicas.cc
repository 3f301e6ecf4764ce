// The executor's part of the exchange between data-parallel replicas.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "worker/pipeline/executor.h"

namespace longhaul::worker {

ReplicaPort& Executor::PortTo(uint32_t replica) const {
  const auto found = std::ranges::find_if(options_.replica_ports, [replica](const auto& port) {
    return port->peer().replica == replica;
  });
  LH_CHECK(found != options_.replica_ports.end(), "no port to replica {}", replica);
  return **found;
}

Status Executor::SumOverReplicas() {
  {
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kReplicas);
    LH_RETURN_IF_ERROR(options_.exchange->Begin(step_));
  }
  while (!options_.exchange->IsReduced()) {
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT, WorkAtHand::Wait::kReplicas));
  }
  return absl::OkStatus();
}

Status Executor::StepWithReplicas(double learning_rate, double gradient_scale) {
  {
    const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kOptimizer);
    LH_RETURN_IF_ERROR(options_.exchange->StepOwn(step_, learning_rate, gradient_scale));
  }
  while (!options_.exchange->IsDone()) {
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT, WorkAtHand::Wait::kReplicas));
  }
  const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
  const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kOptimizer);
  return options_.exchange->End(step_);
}

// A checkpoint never contains a merge in flight: the state is saved before the merge begins or
// after it has ended. A run that stops begins no merge that would not end with this step.
Status Executor::EndStepApart() {
  ReplicaExchange& exchange = *options_.exchange;
  const bool due = exchange.IsDue(step_), at_once = due && exchange.MergeIsDue(step_);
  if (!at_once) LH_RETURN_IF_ERROR(SaveState());
  if (at_once || (due && !StopsNow())) {
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kReplicas);
    LH_RETURN_IF_ERROR(exchange.BeginMerge(step_));
  }
  if (exchange.MergeIsDue(step_)) LH_RETURN_IF_ERROR(AwaitMerge());
  return at_once ? SaveState() : absl::OkStatus();
}

Status Executor::AwaitMerge() {
  while (true) {
    {
      const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kReplicas);
      LH_ASSIGN_OR_RETURN(const bool merged, options_.exchange->IsMerged());
      if (merged) return absl::OkStatus();
    }
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT, WorkAtHand::Wait::kReplicas));
  }
}

// Norms are summed in the order of replicas, so that all see the same bits. Replicas that train
// apart keep their own norms, and agree on the rest when they merge.
StatusOr<wire::StepMessage> Executor::AgreeWithReplicas(wire::StepMessage own) {
  const double own_norm = own.squared_norm;
  const auto for_this_replica = [&](wire::StepMessage agreed) {
    if (steps_together()) return agreed;
    agreed.squared_norm = own_norm;
    agreed.nonfinite = !std::isfinite(own_norm);
    return agreed;
  };
  if (!options_.exchange->IsDue(step_)) return for_this_replica({});
  const bool decides = options_.cell.replica == 0;
  const size_t expected = decides ? options_.replica_ports.size() : 1;
  if (!decides) {
    // Who is asked through this replica is asked through the first one, too.
    stop_requested_ = false;
    PortTo(0).SendAgreement(wire::TensorKind::kNormUp, step_, own);
  }
  const auto begin = [this] { return of_replicas_.lower_bound({step_, 0}); };
  const auto end = [this] { return of_replicas_.lower_bound({step_.Next(), 0}); };
  while (static_cast<size_t>(std::distance(begin(), end())) < expected) {
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT, WorkAtHand::Wait::kReplicas));
  }
  double squared_norm = own.squared_norm;
  // of_replicas_ is ordered by replica, which fixes the order of the sum.
  for (auto said = begin(); said != end(); ++said) {
    if (!decides) own = said->second;
    squared_norm += said->second.squared_norm;
  }
  of_replicas_.erase(begin(), end());
  if (!decides) return for_this_replica(own);
  const wire::StepMessage decided = Decide(squared_norm);
  for (const auto& port : options_.replica_ports) {
    port->SendAgreement(wire::TensorKind::kStepControl, step_, decided);
  }
  return for_this_replica(decided);
}

Status Executor::Handle(ReplicaAgrees& said) {
  // A replica that trains apart may be ahead up to the next merge. One that owns no shard, in a
  // stage with few parameters, may be a step ahead.
  const bool expected = said.step >= step_ && options_.exchange->IsDue(said.step) &&
                        of_replicas_.size() < 2 * options_.replica_ports.size();
  if (!expected || !of_replicas_.emplace(std::pair{said.step, said.replica}, said.message).second) {
    return InvalidArgument("expected replica {} to agree once on step {}, got step {}",
                           said.replica, step_.value(), said.step.value());
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
