// Counts what members have under way, and refuses what is above their limits
// (coordinator/state/member_limits.h). So no member keeps others from calling. Thread-safe.
//
//   LH_ASSIGN_OR_RETURN(Place place, places->Take(caller, Use::kFetch));
//   ...the reactor of the call keeps `place`, which ends with the reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "coordinator/state/member_limits.h"
#include "proto/rpc/caller.h"

namespace longhaul::coordinator {

// What a call takes a place of.
enum class Use : uint8_t { kUpload, kCopy, kFollower, kFetch, kCall, kWorkerStream };

// One of a member's places, given back by the destructor. A default one is none. May outlive
// Places.
class Place {
 public:
  Place() = default;
  Place(Place&& other) noexcept : taken_(std::move(other.taken_)) {}
  Place& operator=(Place&& other) noexcept {
    std::swap(taken_, other.taken_);
    return *this;
  }

 private:
  friend class Places;
  struct Taken;
  explicit Place(std::shared_ptr<Taken> taken) : taken_(std::move(taken)) {}
  std::shared_ptr<Taken> taken_;
};

class Places {
 public:
  explicit Places(const MemberLimits& limits);
  // kResourceExhausted: the caller, or all together, have as many as they may. The message says
  // how many, and what to do.
  StatusOr<Place> Take(const Caller& caller, Use use);
  // How many of these are taken now by all callers.
  size_t Count(Use use) const;

 private:
  friend struct Place::Taken;
  static constexpr size_t kUses = 6;
  struct Counts {
    mutable std::mutex mutex;  // guards the members below
    std::array<size_t, kUses> all{};
    std::array<std::map<std::string, size_t>, kUses> of;  // members that have some
  };
  const std::array<MemberLimit, kUses> limits_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace longhaul::coordinator
