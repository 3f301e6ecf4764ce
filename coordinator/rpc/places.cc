#include "coordinator/rpc/places.h"

#include <string_view>

#include "coordinator/rpc/rights.h"

namespace longhaul::coordinator {
namespace {

struct UseWords {
  std::string_view things;  // as in "16 uploads"
  std::string_view remedy;
};

UseWords WordsOf(Use use) {
  switch (use) {
    case Use::kUpload:
      return {"uploads under way", "let some of them end first"};
    case Use::kCopy:
      return {"copies of shards under way", "let some of them end first"};
    case Use::kFollower:
      return {"streams that follow runs, events or logs",
              "end some of them (`longhaul watch`, `logs --follow`, `events --follow`)"};
    case Use::kFetch:
      return {"blobs that are being sent", "read those to their end, or cancel them"};
    case Use::kCall:
      return {"calls that wait for an answer", "wait until some of them are answered"};
    case Use::kWorkerStream:
      return {"streams of a worker", "a worker needs one; end the others"};
  }
  return {};
}

}  // namespace

struct Place::Taken {
  Taken(std::shared_ptr<Places::Counts> in, size_t of_use, std::string of_member)
      : counts(std::move(in)), use(of_use), member(std::move(of_member)) {}
  ~Taken() {
    const std::lock_guard lock(counts->mutex);
    --counts->all[use];
    const auto own = counts->of[use].find(member);
    if (own != counts->of[use].end() && --own->second == 0) counts->of[use].erase(own);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  const std::shared_ptr<Places::Counts> counts;
  const size_t use;
  const std::string member;
};

Places::Places(const MemberLimits& limits)
    : limits_{limits.uploads, limits.copies, limits.followers,
              limits.fetches, limits.calls,  limits.worker_streams} {}

StatusOr<Place> Places::Take(const Caller& caller, Use use) {
  const auto at = static_cast<size_t>(use);
  const MemberLimit& limit = limits_[at];
  const UseWords words = WordsOf(use);
  const bool free = MayAll(caller);
  const std::string member = caller.member ? caller.member->name : "";
  {
    const std::lock_guard lock(counts_->mutex);
    size_t& own = counts_->of[at][member];
    // The first one of a member that is refused must leave no entry.
    const auto refuse = [&](Status status) -> Status {
      if (own == 0) counts_->of[at].erase(member);
      return status;
    };
    if (!free && own >= limit.of_member) {
      return refuse(ResourceExhausted("{} has {} {}, and a member may have {}; {}", member, own,
                                      words.things, limit.of_member, words.remedy));
    }
    const size_t kept = limit.in_all > 2 * kKeptForAdmins ? kKeptForAdmins : 0;
    const size_t most = free ? limit.in_all : limit.in_all - kept;
    if (counts_->all[at] >= most) {
      return refuse(ResourceExhausted(
          "there are {} {} of all members, as many as this coordinator serves; try again later",
          counts_->all[at], words.things));
    }
    ++own;
    ++counts_->all[at];
  }
  return Place(std::make_shared<Place::Taken>(counts_, at, member));
}

size_t Places::Count(Use use) const {
  const std::lock_guard lock(counts_->mutex);
  return counts_->all[static_cast<size_t>(use)];
}

}  // namespace longhaul::coordinator
