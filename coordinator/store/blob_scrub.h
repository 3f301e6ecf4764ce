// Reads all blobs again and again, slowly, and finds those that are damaged before anybody needs
// them. BlobStore::Check then deletes such a blob, and the follower, if there is one, is asked for
// its copy.
//
// Threads: one of its own, which ends soon when the object is destroyed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "coordinator/store/blob_store.h"

namespace longhaul::coordinator {

class BlobScrub {
 public:
  struct Pace {
    absl::Duration first = absl::Hours(1);       // from the start until the first round
    absl::Duration pause = absl::Hours(24 * 7);  // between two rounds
    double bytes_per_second = 10e6;
  };
  // `stores` must outlive this object.
  BlobScrub(std::vector<const BlobStore*> stores, Pace pace);
  ~BlobScrub();
  BlobScrub(const BlobScrub&) = delete;
  BlobScrub& operator=(const BlobScrub&) = delete;

 private:
  void Run();
  void Round(const BlobStore& store);
  Status Look(const BlobStore& store, const std::string& sha256);
  // False: the object is being destroyed.
  bool Sleep(absl::Duration duration);

  const std::vector<const BlobStore*> stores_;
  const Pace pace_;
  std::mutex mutex_;  // guards closing_
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator
