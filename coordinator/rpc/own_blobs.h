// Decides which blobs a member may name in a run: blobs of which it uploaded every byte, and blobs
// that its own runs name. Knowing only the hash of another member's data gives no access, and does
// not even reveal whether the data is stored here. Admins may name all blobs; without encryption,
// all callers may.
//
// The list of uploads is kept only in memory. An upload stays in the list for a day after it
// arrived or was last claimed. Garbage collection keeps the blob for the same time. After a restart
// of the coordinator a submitter must upload again. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/state/member_limits.h"
#include "coordinator/store/blob_index.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/disk_room.h"
#include "proto/rpc/caller.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// The last uploads of each member. Each member has its own limit, so no member evicts uploads of
// another.
class RecentUploads {
 public:
  static constexpr size_t kMost = 200'000;  // per member; the oldest are dropped
  explicit RecentUploads(size_t most = kMost) : most_(most) {}

  void Add(const std::string& member, const std::string& sha256, MonoTime now);
  // True if the member uploaded or refreshed the blob within the last day.
  bool Has(const std::string& member, const std::string& sha256, MonoTime now) const;
  // If the blob is in the member's list, its day begins again. Else does nothing.
  void Refresh(const std::string& member, const std::string& sha256, MonoTime now);

 private:
  struct Upload {
    std::string sha256;
    MonoTime time;
  };
  struct OfMember {
    std::list<Upload> uploads;  // the oldest first
    // Each upload by its hash. The keys are views into `uploads`.
    std::unordered_map<std::string_view, std::list<Upload>::iterator> by_hash;
    void ForgetOldest();
  };
  void ForgetLocked(MonoTime now);

  const size_t most_;
  mutable std::mutex mutex_;
  std::map<std::string, OfMember> members_;  // members with uploads
};

class OwnBlobs {
 public:
  // All pointers must outlive this object.
  OwnBlobs(const Shell* shell, BlobLists* lists, BlobIndex* index, const DiskRoom* room,
           const MemberLimits& limits)
      : shell_(shell), lists_(lists), index_(index), room_(room), limits_(limits) {}

  // A Test returns whether a caller may name a blob. Of makes the test for a caller, from the runs
  // that the caller has now. A test must not outlive this object.
  using Test = std::function<bool(const std::string& sha256)>;
  Test Of(const Caller& caller) const;
  // Checks that a member may have one more run with this run file's lists. kResourceExhausted: its
  // runs name as many lists as they may.
  Status MayName(const Caller& caller, const RunSpec& spec) const;
  // Counts the bytes of an upload as the member's until the returned object is destroyed.
  // kResourceExhausted: with them the member has more than it may; the message says what to do.
  // Other errors: those of the index.
  StatusOr<std::shared_ptr<const void>> Promise(const Caller& caller, const std::string& sha256,
                                                uint64_t bytes);
  // Records that a member has sent all bytes of a blob. From now on they count as the member's
  // until the blob is deleted.
  void Uploaded(const Caller& caller, const std::string& sha256, uint64_t bytes);
  // Records that a member is about to name one of its blobs.
  void Claimed(const Caller& caller, const std::string& sha256);
  BlobLists& lists() const { return *lists_; }

 private:
  uint64_t BytesAllowed() const;

  struct Promised {
    std::mutex mutex;
    std::map<std::string, uint64_t> of;  // bytes of each member's uploads under way
  };
  const Shell* const shell_;
  BlobLists* const lists_;
  BlobIndex* const index_;
  const DiskRoom* const room_;
  const MemberLimits limits_;
  const std::shared_ptr<Promised> promised_ = std::make_shared<Promised>();
  RecentUploads recent_;
};

}  // namespace longhaul::coordinator
