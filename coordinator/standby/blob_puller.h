// Fetches the blobs that a follower lacks, beside the stream of changes: four at a time, the
// smallest first. What fails is tried again later, and stops nothing else.
#pragma once

#include <grpcpp/client_context.h>

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/standby.grpc.pb.h"

namespace longhaul::coordinator {

// A blob of the leader.
struct ListedBlob {
  v1::BlobFolder folder = v1::BLOB_FOLDER_DATA;
  std::string sha256;

  friend auto operator<=>(const ListedBlob&, const ListedBlob&) = default;
};

// The blobs that are still to be fetched, and which is next. Pure; not thread-safe.
class PullList {
 public:
  // A blob that failed waits for this long, and twice as long after each further failure.
  static constexpr absl::Duration kShortestPause = absl::Seconds(1);
  static constexpr absl::Duration kLongestPause = absl::Minutes(5);

  // Does nothing if the blob is in the list.
  void Add(ListedBlob blob, uint64_t bytes);
  // Takes a blob off the list, because it is here or no longer there.
  void Remove(const ListedBlob& blob);
  // Returns the smallest blob that nobody fetches and that does not wait, and counts it as being
  // fetched; nullopt: there is none now.
  std::optional<ListedBlob> Next(MonoTime now);
  // A fetch of a blob failed.
  void Failed(const ListedBlob& blob, MonoTime now);
  // When the next blob that waits may be tried; MonoTime::max(): none waits.
  MonoTime NextTry() const;

  uint64_t blobs() const { return blobs_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    uint64_t bytes = 0;
    bool under_way = false;
    MonoTime not_before = MonoTime::min();
    absl::Duration pause;
  };
  std::map<ListedBlob, Entry> blobs_;
  std::set<std::pair<uint64_t, ListedBlob>> ready_;    // by size
  std::set<std::pair<MonoTime, ListedBlob>> waiting_;  // after a failure, by when they may be tried
  uint64_t bytes_ = 0;
};

// Threads: four of its own. All methods may be called on any thread.
class BlobPuller {
 public:
  static constexpr size_t kAtOnce = 4;
  using Store = std::function<const BlobStore&(v1::BlobFolder)>;
  using Has = std::function<void(const ListedBlob& blob)>;
  using Damaged = std::function<void(const ListedBlob& blob, const Status& why)>;

  // `store`: where blobs are kept. `has`: called once this follower has a blob of the list.
  // `damaged`: called when the leader's bytes of a blob have another hash; empty: nobody is told.
  // All are called on threads of this object, without locks, until the destructor returns.
  BlobPuller(Store store, Has has, Damaged damaged = {});
  ~BlobPuller();
  BlobPuller(const BlobPuller&) = delete;
  BlobPuller& operator=(const BlobPuller&) = delete;

  // Begins with an empty list, at the leader of `stub`.
  void Begin(std::shared_ptr<v1::StandbyService::Stub> stub);
  // The stream has ended: forgets the list, and breaks off what is being fetched.
  void End();
  void Add(const ListedBlob& blob, uint64_t bytes);
  // The leader has removed the blob. The caller removes it here.
  void Remove(const ListedBlob& blob);

  // What this follower still lacks.
  struct Missing {
    uint64_t blobs = 0, bytes = 0;
  };
  Missing missing() const;

 private:
  void Run();
  Status Fetch(const ListedBlob& blob, v1::StandbyService::Stub* stub,
               grpc::ClientContext* context);

  const Store store_;
  const Has has_;
  const Damaged damaged_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  PullList list_;
  std::shared_ptr<v1::StandbyService::Stub> stub_;  // null: no stream
  uint64_t stream_ = 0;                             // number of the stream
  std::set<grpc::ClientContext*> under_way_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::coordinator
