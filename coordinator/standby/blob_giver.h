// Sends the leader copies of blobs that were damaged there.
#pragma once

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/status.h"
#include "coordinator/standby/blob_puller.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/standby.grpc.pb.h"

namespace longhaul::coordinator {

// Threads: one of its own. All methods may be called on any thread.
class BlobGiver {
 public:
  static constexpr size_t kMostWaiting = 100'000;  // further ones are not given
  using Store = std::function<const BlobStore&(v1::BlobFolder)>;
  using Lacks = std::function<void(const ListedBlob& blob, const Status& why)>;

  // `store`: where blobs are. `lacks`: called if this follower has no whole copy either, on the
  // thread of this object, without locks. Both are called until the destructor returns.
  BlobGiver(Store store, Lacks lacks);
  ~BlobGiver();
  BlobGiver(const BlobGiver&) = delete;
  BlobGiver& operator=(const BlobGiver&) = delete;

  // The leader of `stub` wants this blob.
  void Give(std::shared_ptr<v1::StandbyService::Stub> stub, ListedBlob blob);
  // The stream has ended: forgets what is wanted, and breaks off.
  void End();

 private:
  void Run();
  Status Send(const ListedBlob& blob, v1::StandbyService::Stub* stub, grpc::ClientContext* context);

  const Store store_;
  const Lacks lacks_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::pair<std::shared_ptr<v1::StandbyService::Stub>, ListedBlob>> wanted_;
  grpc::ClientContext* context_ = nullptr;  // of the call under way
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator
