// Compares what seats do with what must never happen:
// - two processes commit changes in one term;
// - two seats commit different changes with one number, or a leader lacks a committed change;
// - a seat applies a change that nobody committed, or forgets one that it has applied;
// - a client's call that was answered with success is lost, a refused one is carried out, or any is
//   carried out twice.
// A loss of power may take changes that a leader, alone, did not sync: the checker is told of it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "coordinator/lead/history.h"

namespace longhaul::coordinator::lead_sim {

struct World;
struct Row;

class HistoryChecker {
 public:
  explicit HistoryChecker(World* world) : world_(world) {}

  // The leader `who` has committed all of `log`.
  void Committed(const std::string& who, uint64_t term, const Tenure& tenure,
                 std::span<const Row> log);
  // A follower has applied `row`.
  void Applied(const std::string& who, const Row& row);
  // A leader that was alone has lost its committed changes behind `number`. The other seat may have
  // them, and bring them back.
  void LostUnsynced(uint64_t number);
  // A client asked for `value`, and was told that this is stored, or that it is not. Without either
  // nobody knows.
  void ToldStored(uint64_t value) { stored_.insert(value); }
  void ToldRefused(uint64_t value) { refused_.insert(value); }
  // Somebody else may carry it out after all: a call that nobody knows of was repeated.
  void Unknown(uint64_t value) { unknown_.insert(value); }
  // Whether `log` has every committed change.
  bool HasAll(std::span<const Row> log) const;
  // At the end: compares with the log of whoever leads.
  void CheckEnd(std::span<const Row> log);

  uint64_t commits() const { return commits_; }  // how often a leader committed
  uint64_t committed() const { return done_.size(); }
  uint64_t terms() const { return leaders_.size(); }
  const std::set<uint64_t>& stored() const { return stored_; }

 private:
  World* const world_;
  std::vector<History> done_;  // all committed changes
  std::set<uint64_t> lost_;    // chains of committed changes that were lost
  std::map<uint64_t, std::pair<Tenure, std::string>> leaders_;  // who committed in a term
  std::set<uint64_t> stored_, refused_, unknown_;
  uint64_t commits_ = 0;
};

}  // namespace longhaul::coordinator::lead_sim
