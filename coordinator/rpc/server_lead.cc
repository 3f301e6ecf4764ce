// How a coordinator begins to lead, and what it says of that.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/disk_call.h"
#include "base/log.h"
#include "coordinator/rpc/server_parts.h"
#include "coordinator/standby/ask_term.h"

namespace longhaul::coordinator {
namespace {

// How long another coordinator is asked for its term.
constexpr absl::Duration kAskLimit = absl::Seconds(2);

// A disk call that takes so long is told of to whoever asks who leads.
constexpr absl::Duration kSlowDisk = absl::Seconds(1);

// Why a state directory does not lead by itself.
Status MayNotLead(const LeadershipRecord& record, const std::string& state_dir) {
  const std::string peer = record.peer.empty() ? "HOST:PORT of the other one" : record.peer;
  if (record.role == LeaderRole::kFenced) {
    return FailedPrecondition(
        "another coordinator leads: {} (term {}). The records in {} are older. Start this one with "
        "--standby {}, and it follows that one; --force lets it serve with what it has, when the "
        "other is gone for good",
        peer, record.term(), state_dir, peer);
  }
  if (record.role == LeaderRole::kStandby) {
    return FailedPrecondition(
        "{} is the state directory of a standby of {}. Start it with --standby {}, and it follows "
        "that one; --force serves now with what it has",
        state_dir, peer, peer);
  }
  return FailedPrecondition(
      "the coordinator {} may have been elected, because it has all changes of {}. Start this one "
      "with --peer {}, and it asks the witness; --force serves without asking, when the other is "
      "gone for good",
      peer, state_dir, peer);
}

}  // namespace

// Begins a term. Nothing is written to the store before.
Status CoordinatorServer::Impl::Lead(const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(LeadershipRecord record, ReadLeadership(options.state_dir));
  if (!options.peer.empty()) record.peer = options.peer;
  const Standing standing = store->journal().standing();
  Seat seat = options.elected ? *options.elected : Seat(record.seat);
  seat.SetStore(standing.applied, standing.tail);
  const bool forced = !options.elected && options.claim == Claim::kForce && !record.leads_alone();
  if (forced) {
    seat.Force(NewTenure(), TermOfForce(record.term(), absl::Now()));
  } else if (!options.elected) {
    if (!record.leads_alone()) return MayNotLead(record, options.state_dir);
    seat.LeadAlone(NewTenure(), standing.logged().term);
  }
  LH_ASSIGN_OR_RETURN(leadership,
                      Leadership::Begin(options.state_dir, std::move(record), std::move(seat)));
  store->journal().SetReplicator(leadership.get());
  LH_RETURN_IF_ERROR(store->BeginTerm({.tenure = leadership->tenure().value(),
                                       .seat = leadership->record().seat.seat,
                                       .address = options.listen}));
  // Not before: the tail, which is applied now, may have entries.
  LH_ASSIGN_OR_RETURN(audit, Audit::Open(options.state_dir, &store->journal()));
  LH_ASSIGN_OR_RETURN(voting, Voting::Open(options.state_dir, &store->journal()));
  if (forced) {
    // It may have elected the other coordinator, and would refuse this one for ever.
    LH_RETURN_IF_ERROR(voting->Set({}));
    LogWarning("no witness counts any more; begin one with an empty state directory");
  }
  if (forced || options.elected) {
    v1::AuditEntry entry;
    entry.set_action(forced ? "force" : "takeover");
    entry.set_object(leadership->record().peer);
    entry.set_outcome(fmt::format("term {}", leadership->term()));
    audit->Record(std::move(entry));
  }
  return absl::OkStatus();
}

StatusOr<std::string> CoordinatorServer::Impl::AdmitSeat(grpc::ServerContext& context, Call call) {
  LH_ASSIGN_OR_RETURN(const Caller caller, port->Identify(context));
  if (!caller.member) return absl::FailedPreconditionError("this call needs TLS");
  LH_RETURN_IF_ERROR(CheckRole(caller, call));
  LH_RETURN_IF_ERROR(gate->StillMember(caller));
  port->LetIn(context, caller);
  return caller.member->name;
}

SeatLines::Handler CoordinatorServer::Impl::SeatCalls() {
  return {.on_vote = [this](grpc::ServerContext& context,
                            const v1::VoteRequest& request) -> StatusOr<v1::VoteReply> {
            LH_RETURN_IF_ERROR(AdmitSeat(context, Call::kVote).status());
            return leadership->OnVote(request);
          },
          .on_lead = [this](grpc::ServerContext& context,
                            const v1::LeadRequest& request) -> StatusOr<v1::LeadReply> {
            LH_ASSIGN_OR_RETURN(const Caller caller, gate->Admit(context, Call::kLead));
            const std::string object =
                request.alone() ? "alone" : fmt::format("to {}", request.to());
            // Stored before: whoever hands over writes nothing afterwards.
            gate->Note(caller, context, "lead", object, absl::OkStatus());
            LH_RETURN_IF_ERROR(audit->List(v1::ListAuditRequest()).status());
            return LeadAs(request);
          }};
}

StatusOr<v1::LeadReply> CoordinatorServer::Impl::LeadAs(const v1::LeadRequest& request) {
  v1::LeadReply reply;
  switch (request.what_case()) {
    case v1::LeadRequest::kTo: {
      LH_ASSIGN_OR_RETURN(const uint64_t term, leadership->HandOver(request.to()));
      reply.set_term(term);
      reply.set_said(fmt::format("the coordinator {} leads now, with term {}", request.to(), term));
      return reply;
    }
    case v1::LeadRequest::kAlone:
      LH_RETURN_IF_ERROR(leadership->GoAlone());
      reply.set_term(leadership->term());
      reply.set_said("this coordinator leads alone: no standby is in sync before it starts again");
      return reply;
    case v1::LeadRequest::WHAT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("expected `to` or `alone`");
}

Status CoordinatorServer::Impl::StartLeading(const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(VotingWitness witness, ReadVoting(options.state_dir));
  Leadership::Hooks hooks{
      .ask_witness =
          [this](const witness::Request& request) {
            return witness_lines && witness_lines->Ask(request);
          },
      .set_witness = [this](const VotingWitness& named) { return voting->Set(named); },
      .is_member =
          [this](const std::string& name) {
            if (members == nullptr) return true;
            return std::ranges::any_of(members->List(), [&](const v1::MemberStatus& member) {
              return member.name() == name && member.revoked_unix_ms() == 0;
            });
          },
      .ask_term = [this](const std::string& address) -> std::optional<uint64_t> {
        if (!authorities) return std::nullopt;
        const StatusOr<uint64_t> term =
            AskTerm(address, authorities->Trusted(absl::Now()), kAskLimit);
        return term.ok() ? std::optional(*term) : std::nullopt;
      },
      .address = port->address(),
      .elected = options.elected.has_value(),
      .on_sure = [this](const Status& sure) { shell->SetSure(sure); }};
  if (witness.id.empty() && !leadership->record().peer.empty()) {
    LogWarning(
        "there is no witness, so {} never takes over by itself; start one: longhaul-coordinator "
        "witness, or longhaul-worker --witness",
        leadership->record().peer);
  }
  leadership->Start(std::move(hooks), std::move(witness));
  return absl::OkStatus();
}

v1::LeadershipInfo CoordinatorServer::Impl::Leads() const {
  v1::LeadershipInfo info = leadership->Info();
  info.set_unstored(shell->unstored_for().has_value());
  const auto note = [&info](std::string_view sentence) {
    info.set_notes(fmt::format("{}{}{}", info.notes(), info.notes().empty() ? "" : "\n", sentence));
  };
  const std::optional<DiskCallNow> call = LongestShortDiskCall();
  if (call && Now() - call->since >= kSlowDisk) {
    note(fmt::format("{} has taken {} so far: the disk does not answer", call->what,
                     absl::FormatDuration(absl::Trunc(Now() - call->since, absl::Seconds(1)))));
  }
  if (const Status found = store_check ? store_check->found() : absl::OkStatus(); !found.ok()) {
    info.set_store_damaged(true);
    note(Message(found));
  }
  if (port) info.set_address(port->address());
  return info;
}

}  // namespace longhaul::coordinator
