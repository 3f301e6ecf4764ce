#include "coordinator/state/queries/request_book.h"

namespace longhaul::coordinator {

const AnsweredCall* RequestBook::Find(std::string_view owner, std::string_view id) const {
  const auto found = calls_.find(Key(owner, id));
  return found == calls_.end() ? nullptr : &found->second.call;
}

std::vector<RequestBook::Key> RequestBook::Add(AnsweredCall call, MonoTime now) {
  std::vector<Key> gone;
  const Key key(call.owner, call.id);
  if (const auto old = calls_.find(key); old != calls_.end()) Forget(old->second.order, nullptr);
  const uint64_t order = next_order_++;
  by_age_[order] = key;
  std::set<uint64_t>& own = of_owner_[call.owner];
  own.insert(order);
  calls_[key] = {std::move(call), order, now};
  if (own.size() > kMaxAnswersOfMember) Forget(*own.begin(), &gone);
  while (calls_.size() > kMaxAnswers ||
         now - calls_.at(by_age_.begin()->second).since > kAnswersKept) {
    Forget(by_age_.begin()->first, &gone);
  }
  return gone;
}

void RequestBook::Forget(uint64_t order, std::vector<Key>* gone) {
  const auto found = by_age_.find(order);
  const Key key = found->second;
  by_age_.erase(found);
  calls_.erase(key);
  const auto own = of_owner_.find(key.first);
  own->second.erase(order);
  if (own->second.empty()) of_owner_.erase(own);
  if (gone != nullptr) gone->push_back(key);
}

}  // namespace longhaul::coordinator
