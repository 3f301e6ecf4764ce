// How a leader lets the other coordinator lead, or goes on without it, because a person wants it so
// (leadership.h).
#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/standby/seat_lines.h"

namespace longhaul::coordinator {
namespace {

// How long the standby may take to ask, and a change that is under way to be committed.
constexpr absl::Duration kHandOverLimit = absl::Seconds(5);
constexpr absl::Duration kVoteWait = absl::Seconds(2);
// How long the witness may take to agree, and how often it is asked.
constexpr absl::Duration kAloneLimit = absl::Seconds(4);
constexpr absl::Duration kAskAloneAgain = absl::Milliseconds(500);

}  // namespace

StatusOr<uint64_t> Leadership::HandOver(const std::string& address) {
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) return Unavailable("{}", Message(failure_));
  if (hands_over_) return absl::UnavailableError("this coordinator hands over already");
  if (sink_ == nullptr || !live_ || !seat_.in_sync_of_two()) {
    return absl::FailedPreconditionError(
        "no standby is in sync, so none can lead without losing changes; longhaul status says how "
        "far it is");
  }
  if (address != live_address_) {
    return InvalidArgument("expected {}, the address of the standby that is in sync, got {}",
                           live_address_, address);
  }
  LogInfo("the standby {} is to lead", address);
  hands_over_ = true;
  seat_.HandOver();
  sink_->HandOver();
  const MonoTime until = Now() + kHandOverLimit;
  changed_.wait_until(lock, until.ToChrono(), [this] { return !failure_.ok() || closing_; });
  if (!failure_.ok()) return seat_.record().term;
  hands_over_ = false;
  seat_.KeepLead();
  changed_.notify_all();
  return DeadlineExceeded(
      "the standby {} has not asked for the vote of this coordinator within {}; this one leads on",
      address, absl::FormatDuration(kHandOverLimit));
}

v1::VoteReply Leadership::OnVote(const v1::VoteRequest& request) {
  const seat_message::Vote vote = VoteOf(request);
  std::unique_lock lock(mutex_);
  const MonoTime until = Now() + kVoteWait;
  changed_.wait_until(lock, until.ToChrono(), [this] {
    return !hands_over_ || under_way_ == nullptr || !failure_.ok() || closing_;
  });
  seat_message::Voted voted{.term = vote.term,
                            .tenure = vote.tenure,
                            .seat = seat_.record().seat,
                            .newest = seat_.record().term};
  if (!hands_over_ || under_way_ != nullptr || vote.seat != live_seat_ || !failure_.ok()) {
    return ReplyOf(voted, "this coordinator leads");
  }
  seat_.OnSeat(vote);
  const std::optional<SeatMessage> said = CarryLocked();
  // It counts only if it is stored.
  const bool stored = absl::IsFailedPrecondition(failure_);
  if (said && std::holds_alternative<seat_message::Voted>(*said) && stored) {
    voted = std::get<seat_message::Voted>(*said);
  }
  return ReplyOf(voted, "this coordinator leads, and has changes that the other one lacks");
}

Status Leadership::GoAlone() {
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) return Unavailable("{}", Message(failure_));
  stays_alone_ = true;
  const MonoTime until = Now() + kAloneLimit;
  while (failure_.ok() && !seat_.alone()) {
    if (Now() >= until || closing_) {
      stays_alone_ = false;
      return absl::UnavailableError(
          "the witness did not agree that this coordinator goes on alone: it is not to be heard; "
          "nothing has changed");
    }
    seat_.Shrink();
    CarryLocked();
    changed_.wait_until(lock, std::min(until, Now() + kAskAloneAgain).ToChrono(),
                        [this] { return !failure_.ok() || seat_.alone() || closing_; });
  }
  if (!failure_.ok()) return Unavailable("{}", Message(failure_));
  LogInfo("this coordinator goes on alone, until it starts again");
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
