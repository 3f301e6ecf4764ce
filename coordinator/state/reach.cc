// Who reaches whom: the book says what to ask and what to say; here it is sent, logged, planned for
// and shown.
#include <algorithm>
#include <utility>

#include "coordinator/state/core.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

void Core::CheckReach(const Worker& worker) {
  Carry(reach_.Come({worker.id, worker.hello.name(), FromProto(worker.hello.endpoints())}, now_));
}

void Core::Carry(const ReachBook::News& news) {
  for (const ReachBook::Question& question : news.questions) {
    const Worker &from = *FindWorker(question.dialler), &to = *FindWorker(question.dialled);
    v1::WorkerCommand command;
    v1::TryReach& ask = *command.mutable_try_reach();
    ask.set_check(question.check);
    ask.set_transport(question.transport);
    ask.set_limit_seconds(absl::ToDoubleSeconds(options_.reach_limit));
    ask.set_link_secret(question.link_secret);
    ask.mutable_addresses()->Assign(question.addresses.begin(), question.addresses.end());
    ask.set_peer_name(from.hello.name());
    Send(to, command);
    ask.set_peer_name(to.hello.name());
    ask.set_dial(true);
    Send(from, std::move(command));
  }
  for (const std::string& sentence : news.sentences) Log(nullptr, "worker", sentence);
  if (news.has_changed) ++sequence_;
}

void Core::AddReach(CandidateWorker* worker) const {
  for (ReachBook::Failure& failure : reach_.FailuresOf(worker->id)) {
    const TransportTraits* const transport = FindTransport(failure.transport);
    if (transport == nullptr) continue;
    worker->does_not_reach[{failure.to, transport->kind}] = std::move(failure.problem);
  }
}

bool Core::IsTryingReach(const RunSpec& spec, const Worker& upper, const Worker& lower,
                         EdgeKind kind) const {
  const auto transport =
      LinkTransport(spec, CandidateOf(spec, upper), CandidateOf(spec, lower), kind);
  if (!transport.ok()) return false;
  if (reach_.IsAsking(upper.id, lower.id, std::string(ToString(*transport)))) return true;
  // A relay is for those that reach each other over neither.
  const auto ends = EndsOf(spec, CandidateOf(spec, upper), CandidateOf(spec, lower), kind);
  return !ends.ok() && !RelaysNow().empty() &&
         std::ranges::any_of(kTransports, [&](const TransportTraits& one) {
           return one.faces_strangers && reach_.IsAsking(upper.id, lower.id, std::string(one.name));
         });
}

bool Core::IsTryingReach(const Draft& draft) const {
  if (draft.candidates_for) {
    if (draft.survey.HasBegun()) return false;
    for (const Draft::Candidate& one : draft.workers) {
      for (const Draft::Candidate& other : draft.workers) {
        if (one.id < other.id && IsTryingReach(draft.spec, *FindWorker(one.id),
                                               *FindWorker(other.id), EdgeKind::kActivations)) {
          return true;
        }
      }
    }
    return false;
  }
  return std::ranges::any_of(draft.probes.edges(), [&](const ProbeEdge& edge) {
    return IsTryingReach(draft.spec, *FindWorker(edge.from), *FindWorker(edge.to), edge.kind);
  });
}

MonoTime Core::ReachPatience() const {
  return now_ + options_.reach_limit + kAnswerPatience;
}

void Core::RenderReach(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const {
  const ReachBook::Standing standing = reach_.StandingOf(worker.id);
  for (const ReachBook::CutOff& cut : standing.cut_off) {
    v1::UnreachableWorker& one = *status->add_cannot_talk_to();
    one.set_worker(cut.name);
    one.set_transport(cut.transport);
    one.set_problem(cut.problem);
    one.set_age_seconds(absl::ToDoubleSeconds(now - cut.at - asleep_));
  }
  status->set_can_talk_to(standing.talks_to);
}

}  // namespace longhaul::coordinator
