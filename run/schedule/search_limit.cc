#include "run/schedule/search_limit.h"

#include <fmt/format.h>

#include <utility>

namespace longhaul::schedule {

struct SearchLimit::Shared {
  std::function<bool()> is_over;
  std::string when;
  bool has_ended = false;
  uint64_t looked_at = 0;
};

SearchLimit::SearchLimit(std::function<bool()> is_over, std::string when)
    : shared_(std::make_shared<Shared>()) {
  shared_->is_over = std::move(is_over);
  shared_->when = std::move(when);
}

bool SearchLimit::IsOver() const {
  if (shared_ == nullptr) return false;
  if (!shared_->has_ended) shared_->has_ended = shared_->is_over();
  return shared_->has_ended;
}

void SearchLimit::Count(uint64_t looked_at) const {
  if (shared_ != nullptr) shared_->looked_at += looked_at;
}

bool SearchLimit::HasEndedSearches() const {
  return shared_ != nullptr && shared_->has_ended;
}

std::string SearchLimit::Words() const {
  if (!HasEndedSearches()) return "";
  return fmt::format("the search ended {}, and took the best of {} plan{} that it had looked at",
                     shared_->when, shared_->looked_at, shared_->looked_at == 1 ? "" : "s");
}

}  // namespace longhaul::schedule
