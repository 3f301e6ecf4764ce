// Tells a search when it has looked for long enough. It then ends with the best that it has found;
// a search that has found nothing yet goes on until it has something. Copies share their state, so
// all parts of a search end together. For one thread at a time.
//
//   SearchLimit limit([end = Now() + absl::Seconds(5)] { return Now() >= end; }, "after 5 s");
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace longhaul::schedule {

class SearchLimit {
 public:
  SearchLimit() = default;  // no limit
  // `is_over`: called often, and no more once it has returned true; must not be empty. `when`: for
  // people, "after 5 s".
  SearchLimit(std::function<bool()> is_over, std::string when);

  bool is_set() const { return shared_ != nullptr; }
  // Call it only where the caller then ends a search early, because HasEndedSearches() says so from
  // then on.
  bool IsOver() const;
  // Counts what a search has looked at: orders of workers, simulated settings.
  void Count(uint64_t looked_at) const;
  // Whether a search has ended early.
  bool HasEndedSearches() const;
  // For people, without a full stop: "the search ended after 5 s, and took the best of 12 plans
  // that it had looked at". Empty: no search has ended early.
  std::string Words() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // null: no limit
};

}  // namespace longhaul::schedule
