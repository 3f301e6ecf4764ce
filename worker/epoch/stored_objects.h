// Reads and writes the objects of checkpoints in object stores, at addresses that the coordinator
// signs, or with this machine's own credentials where its owner wants so (remote_objects.h).
// Thread-safe.
#pragma once

#include <string>

#include "worker/epoch/remote_objects.h"
#include "worker/shards/folder_courier.h"

namespace longhaul::worker {

class StoredObjects final : public Objects {
 public:
  // `objects` must outlive this object.
  explicit StoredObjects(const RemoteObjects* objects) : objects_(objects) {}

  // As Objects. Errors besides: those of ObjectSigner and remote::Store. What fails for a passing
  // reason is tried again for some minutes.
  Status Write(const std::string& run, const std::string& address, std::span<const std::byte> bytes,
               Deadline deadline, const GivenUp& given_up) override;
  Status Read(const std::string& run, const std::string& address, uint64_t bytes,
              const std::function<Status(std::span<const std::byte>)>& take, Deadline deadline,
              const GivenUp& given_up) override;

 private:
  const RemoteObjects* const objects_;
};

}  // namespace longhaul::worker
