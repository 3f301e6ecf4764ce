#include "coordinator/lead/worker_word.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace longhaul::coordinator {

WordAnswer WorkerWords::On(const LeaderNow& lead, const WorkerWord& word, MonoTime now,
                           int64_t unix_seconds) {
  unix_seconds_ = static_cast<uint64_t>(std::max<int64_t>(unix_seconds, 0));
  if (word.term < lead.term) return {};
  if (word.term == lead.term && word.tenure == lead.tenure) {
    if (word.change <= lead.change) return {};
    // This process and its disk went back in time together, as a virtual machine does that is put
    // back to an old state.
    return Begin(lead, word.term,
                 fmt::format("worker {} has seen change {} of this term, and its records end at {}",
                             word.worker, word.change, lead.change),
                 now);
  }
  const uint64_t known = std::max(lead.term, unix_seconds_);
  if (word.term > known && word.term - known > kMostAbove) {
    return {.step = WordStep::kRefuse,
            .above = 0,
            .why = fmt::format("worker {} names term {}, which no coordinator can have; delete the "
                               "file `term` in its state directory",
                               word.worker, word.term)};
  }
  const std::string why =
      word.term == lead.term
          ? fmt::format(
                "this coordinator has term {}, and worker {} obeys another one of that term",
                lead.term, word.worker)
          : fmt::format("this coordinator has term {}, and worker {} knows one of term {}",
                        lead.term, word.worker, word.term);
  if (lead.has_voters) return Begin(lead, word.term, why, now);
  if (!word.leader_address.empty() && !lead.is_here) {
    return {.step = WordStep::kAskLeader, .above = word.term, .why = why};
  }
  return OnTermThere(lead, word, std::nullopt, now);
}

WordAnswer WorkerWords::OnTermThere(const LeaderNow& lead, const WorkerWord& word,
                                    std::optional<uint64_t> there, MonoTime now) {
  const std::string where = word.leader_address.empty() ? "" : " at " + word.leader_address;
  if (there && *there > lead.term) {
    return {.step = WordStep::kStepDown,
            .above = *there,
            .why = fmt::format("another coordinator{} leads with term {}", where, *there)};
  }
  const std::string why =
      fmt::format("this coordinator has term {}, and worker {} obeyed one{} of term {}", lead.term,
                  word.worker, where, word.term);
  if (lead.had_standby) {
    return {.step = WordStep::kRefuse,
            .above = word.term,
            .why = why +
                   ", which cannot be asked; if that one is gone for good, --force begins a "
                   "newer term here"};
  }
  return Begin(lead, word.term, why, now);
}

WordAnswer WorkerWords::Begin(const LeaderNow& lead, uint64_t above, std::string why,
                              MonoTime now) {
  const auto pause = static_cast<uint64_t>(absl::ToInt64Seconds(kBetweenRaises));
  const bool is_new = lead.term + pause > unix_seconds_;
  if (is_new || (last_ && now - *last_ < kBetweenRaises)) {
    return {.step = WordStep::kRefuse, .above = above, .why = std::move(why)};
  }
  last_ = now;
  return {.step = lead.has_voters ? WordStep::kElect : WordStep::kRaise,
          .above = std::max(above, unix_seconds_ - 1),
          .why = std::move(why)};
}

bool WasPutBack(const LeaderNow& lead, const WorkerWord& word, uint64_t at_start) {
  return word.tenure != lead.tenure && word.change > at_start;
}

}  // namespace longhaul::coordinator
