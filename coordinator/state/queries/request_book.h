// The answers of the newest calls that had an id (once.h). Pure. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/state/once.h"

namespace longhaul::coordinator {

// How long answers are kept, counted from the start of the process or later, and how many: of one
// member, and of all. The oldest go first.
inline constexpr absl::Duration kAnswersKept = absl::Hours(24);
inline constexpr size_t kMaxAnswersOfMember = 1'000;
inline constexpr size_t kMaxAnswers = 20'000;

class RequestBook {
 public:
  using Key = std::pair<std::string, std::string>;  // owner, id

  // Null: there is none. Owners do not see each other's answers.
  const AnsweredCall* Find(std::string_view owner, std::string_view id) const;
  // Adds an answer, or replaces the one with its owner and id. Returns the keys of those that go
  // now: they are too old, or too many. `now` never goes back: the wall clock may jump, and must
  // not make a call new.
  std::vector<Key> Add(AnsweredCall call, MonoTime now);
  size_t size() const { return calls_.size(); }

 private:
  struct Entry {
    AnsweredCall call;
    uint64_t order = 0;
    MonoTime since;
  };
  void Forget(uint64_t order, std::vector<Key>* gone);

  std::map<Key, Entry> calls_;
  std::map<uint64_t, Key> by_age_;  // oldest first
  std::map<std::string, std::set<uint64_t>> of_owner_;
  uint64_t next_order_ = 1;
};

}  // namespace longhaul::coordinator
