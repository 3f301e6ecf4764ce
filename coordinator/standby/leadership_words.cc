// What a leader does when a worker has obeyed another one (coordinator/lead/worker_word.h).
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "coordinator/standby/leadership.h"

namespace longhaul::coordinator {

LeaderNow Leadership::NowLocked(const WorkerWord& word) const {
  return {.term = term_,
          .tenure = tenure_,
          .change = committed_,
          .has_voters = !witness_.id.empty(),
          .had_standby = !record_.peer.empty(),
          .is_here = word.leader_address == hooks_.address};
}

Status Leadership::OnWorker(const WorkerWord& word) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return Unavailable("{}", Message(failure_));
  const WordAnswer answer =
      words_.On(NowLocked(word), word, Now(), absl::ToUnixSeconds(absl::Now()));
  if (answer.step == WordStep::kWelcome) return absl::OkStatus();
  FollowWordLocked(answer, word);
  changed_.notify_all();
  return absl::UnavailableError(answer.why);
}

void Leadership::FollowWordLocked(const WordAnswer& answer, const WorkerWord& word) {
  switch (answer.step) {
    case WordStep::kWelcome:
    case WordStep::kRefuse:
      return;
    case WordStep::kAskLeader:
      if (!word_) word_ = word;
      return;
    case WordStep::kStepDown:
      record_.peer = word.leader_address;
      seat_.OnNewerTerm(answer.above);
      CarryLocked();
      return;
    case WordStep::kElect:
    case WordStep::kRaise: {
      // A new process asks for a term above that one, by the right that it has then. Nothing of
      // this term goes on.
      LeadershipRecord raised = record_;
      raised.seat.term = std::max(raised.seat.term, answer.above);
      if (const Status written = WriteLeadership(state_dir_, raised); !written.ok()) {
        LogError("{}", Message(written));
        return;
      }
      failure_ = absl::AbortedError(answer.why + ", so it begins a newer term");
      LogWarning("{}", Message(failure_));
      return;
    }
  }
}

void Leadership::AskForTerm(std::unique_lock<std::mutex>* lock) {
  const WorkerWord word = *std::exchange(word_, std::nullopt);
  if (!hooks_.ask_term) return;
  lock->unlock();
  const std::optional<uint64_t> there = hooks_.ask_term(word.leader_address);
  lock->lock();
  if (!failure_.ok()) return;
  const WordAnswer answer = words_.OnTermThere(NowLocked(word), word, there, Now());
  if (answer.step == WordStep::kRefuse) LogWarning("{}", answer.why);
  FollowWordLocked(answer, word);
}

}  // namespace longhaul::coordinator
