// Objects that are read at signed addresses, which somebody with credentials gives. An address is
// asked for once and used for many ranges.
#include <map>
#include <mutex>
#include <utility>

#include "absl/time/clock.h"
#include "base/printable.h"
#include "base/remote/place.h"

namespace longhaul::remote {
namespace {

constexpr size_t kMostSignedAddresses = 4096;
// A request takes a while to reach the server.
constexpr absl::Duration kMargin = absl::Seconds(10);

class Signed final : public Place {
 public:
  Signed(const Tools& tools, std::unique_ptr<const Place> own)
      : tools_(tools), own_(std::move(own)) {}

  StatusOr<Listing> List(const Address& folder, const http::Call& call) const override {
    return own_->List(folder, call);
  }

  StatusOr<Version> Look(const Address& object, const http::Call& call) const override {
    LH_ASSIGN_OR_RETURN(std::optional<SignedAddress> address, AddressOf(object, call));
    if (!address) return own_->Look(object, call);
    if (address->version) return *address->version;
    StatusOr<Version> version = LookByGet(tools_, {.url = address->url}, object, call);
    if (!absl::IsPermissionDenied(version.status()) || !Forget(object)) return version;
    LH_ASSIGN_OR_RETURN(address, AddressOf(object, call));
    if (!address) return own_->Look(object, call);
    return LookByGet(tools_, {.url = address->url}, object, call);
  }

  StatusOr<Source> Find(const Address& object, const Version& version,
                        const http::Call& call) const override {
    LH_ASSIGN_OR_RETURN(const std::optional<SignedAddress> address, AddressOf(object, call));
    if (!address) return own_->Find(object, version, call);
    if (!address->version) {
      return Source{.request = {.url = address->url}, .tag = version.tag};
    }
    if (*address->version == version) return Source{.request = {.url = address->url}, .tag = ""};
    return Aborted(
        "{} has changed: expected {} bytes with the tag {}, it now has {} bytes with the tag {}; "
        "look at it again",
        ShownAddress(object), version.bytes, Printable(version.tag, 100), address->version->bytes,
        Printable(address->version->tag, 100));
  }

  bool Forget(const Address& object) const override {
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(ToString(object));
      // Another thread may have forgotten it just now.
      if (known == known_.end()) return true;
      if (known->second) {
        known_.erase(known);
        return true;
      }
    }
    return own_->Forget(object);
  }

  StatusOr<Version> Write(const Address& object, std::span<const std::byte> bytes,
                          const http::Call& call) const override {
    return own_->Write(object, bytes, call);
  }
  StatusOr<bool> PrepareWrites(const Address& folder, const http::Call& call) const override {
    return own_->PrepareWrites(folder, call);
  }
  Status WriteAll(const Address& folder, const FolderChange& change,
                  const http::Call& call) const override {
    return own_->WriteAll(folder, change, call);
  }
  StatusOr<SignedAddress> SignRead(const Address& object, absl::Duration validity,
                                   const http::Call& call) const override {
    return own_->SignRead(object, validity, call);
  }
  StatusOr<SignedAddress> SignWrite(const Address& object, absl::Duration validity) const override {
    return own_->SignWrite(object, validity);
  }

 private:
  // nullopt: the service is asked as everybody may.
  StatusOr<std::optional<SignedAddress>> AddressOf(const Address& object,
                                                   const http::Call& call) const {
    const std::string name = ToString(object);
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(name);
      if (known != known_.end() && !HasExpired(known->second)) return known->second;
    }
    LH_ASSIGN_OR_RETURN(std::optional<SignedAddress> address,
                        tools_.options.ask_signed(object, call));
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMostSignedAddresses) known_.clear();
    known_[name] = address;
    return address;
  }

  static bool HasExpired(const std::optional<SignedAddress>& address) {
    return address && address->expires && absl::Now() + kMargin > *address->expires;
  }

  const Tools& tools_;
  const std::unique_ptr<const Place> own_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::optional<SignedAddress>> known_;  // by ToString of the object
};

}  // namespace

std::unique_ptr<Place> MakeSigned(const Tools& tools, std::unique_ptr<const Place> own) {
  return std::make_unique<Signed>(tools, std::move(own));
}

}  // namespace longhaul::remote
