#include "tests/sim/coordinator/lead/history_checker.h"

#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {

void HistoryChecker::Committed(const std::string& who, uint64_t term, const Tenure& tenure,
                               std::span<const Row> log) {
  ++commits_;
  const auto [leader, is_new] = leaders_.try_emplace(term, tenure, who);
  if (leader->second.first != tenure) {
    world_->Violate("{} and {}, two processes, commit in term {}", leader->second.second, who,
                    term);
    return;
  }
  const bool newest = term == leaders_.rbegin()->first;
  if (newest && log.size() < done_.size()) {
    world_->Violate("{} leads with term {} and has {} changes; {} are committed", who, term,
                    log.size(), done_.size());
    return;
  }
  // The chain of a change covers all changes before it.
  const size_t common = std::min(log.size(), done_.size());
  if (common > 0 && !(log[common - 1].history == done_[common - 1])) {
    world_->Violate("{} commits change {} of term {} in term {}, and that of term {} is committed",
                    who, common, log[common - 1].history.term, term, done_[common - 1].term);
    return;
  }
  for (size_t i = done_.size(); i < log.size(); ++i) done_.push_back(log[i].history);
}

void HistoryChecker::Applied(const std::string& who, const Row& row) {
  const uint64_t number = row.history.number;
  if (lost_.contains(row.history.chain)) return;
  if (number > done_.size() || !(done_[number - 1] == row.history)) {
    world_->Violate("{} applies change {} of term {}, which is not committed", who, number,
                    row.history.term);
  }
}

void HistoryChecker::LostUnsynced(uint64_t number) {
  for (size_t i = number; i < done_.size(); ++i) lost_.insert(done_[i].chain);
  if (done_.size() > number) done_.resize(number);
}

bool HistoryChecker::HasAll(std::span<const Row> log) const {
  return done_.empty() ||
         (log.size() >= done_.size() && log[done_.size() - 1].history == done_.back());
}

void HistoryChecker::CheckEnd(std::span<const Row> log) {
  std::map<uint64_t, int> found;
  for (const Row& row : log) {
    const Content& content = world_->contents.at(row.history.chain);
    if (content.value != 0) ++found[content.value];
  }
  for (const auto& [value, times] : found) {
    if (times > 1) world_->Violate("the call {} was carried out {} times", value, times);
    if (refused_.contains(value) && !stored_.contains(value) && !unknown_.contains(value)) {
      world_->Violate("the call {} was refused and carried out", value);
    }
  }
  for (const uint64_t value : stored_) {
    if (!found.contains(value)) world_->Violate("the call {} was answered and is lost", value);
  }
}

}  // namespace longhaul::coordinator::lead_sim
