// Which blobs a member may name in a run: those that he uploaded, all of their bytes, and those
// that a run of his names. Whoever knows only the hash of somebody's data gets nothing by it, nor
// learns whether it is here. Admins may name all, and so may everybody without encryption.
//
// Uploads are remembered in memory alone, for a day after they came or were asked for last, as
// garbage collection leaves them; who submits after a restart sends again. Thread-safe.
#ifndef LONGHAUL_COORDINATOR_RPC_OWN_BLOBS_H_
#define LONGHAUL_COORDINATOR_RPC_OWN_BLOBS_H_

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_lists.h"
#include "proto/rpc/caller.h"

namespace longhaul::coordinator {

// The last uploads of members. Each member has a bound of its own, so nobody pushes out what others
// have sent.
class RecentUploads {
 public:
  static constexpr size_t kMost = 200'000;  // of a member; the oldest are forgotten
  explicit RecentUploads(size_t most = kMost) : most_(most) {}

  void Add(const std::string& member, const std::string& sha256, MonoTime now);
  bool Has(const std::string& member, const std::string& sha256, MonoTime now) const;
  // The member counts on a blob: where it is remembered, it is as if it came now.
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
  std::map<std::string, OfMember> members_;  // that have any
};

class OwnBlobs {
 public:
  // All must outlive this.
  OwnBlobs(const Shell* shell, BlobLists* lists) : shell_(shell), lists_(lists) {}

  // Whether a blob is his to name. Valid as long as this; the caller's runs are those of now.
  using Test = std::function<bool(const std::string& sha256)>;
  Test Of(const Caller& caller) const;
  // A member has sent all bytes of a blob.
  void Uploaded(const Caller& caller, const std::string& sha256);
  // A member counts on a blob that is his, and is about to name it.
  void Claimed(const Caller& caller, const std::string& sha256);
  BlobLists& lists() const { return *lists_; }

 private:
  const Shell* const shell_;
  BlobLists* const lists_;
  RecentUploads recent_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_OWN_BLOBS_H_
