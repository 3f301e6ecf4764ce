// A pool of buffers that are expensive to make. A buffer returns to the pool when its last owner
// releases it. Buffers are freed only when the pool is destroyed and all of them have returned.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"

namespace longhaul::worker {

template <class Buffer>
class BufferPool {
 public:
  // `make` makes a new buffer when no returned one is left. Several threads may call `make` at
  // once, inside Take.
  explicit BufferPool(std::function<StatusOr<Buffer>()> make)
      : make_(std::move(make)), idle_(std::make_shared<Idle>()) {}

  // Returns a buffer with any content. Errors are those of `make`.
  StatusOr<std::shared_ptr<Buffer>> Take() {
    std::unique_ptr<Buffer> buffer = idle_->Take();
    if (!buffer) {
      LH_ASSIGN_OR_RETURN(Buffer made, make_());
      buffer = std::make_unique<Buffer>(std::move(made));
    }
    return std::shared_ptr<Buffer>(buffer.release(), [idle = idle_](Buffer* done) {
      idle->Return(std::unique_ptr<Buffer>(done));
    });
  }

 private:
  class Idle {
   public:
    std::unique_ptr<Buffer> Take() {
      const std::lock_guard lock(mutex_);
      if (buffers_.empty()) return nullptr;
      std::unique_ptr<Buffer> buffer = std::move(buffers_.back());
      buffers_.pop_back();
      return buffer;
    }
    void Return(std::unique_ptr<Buffer> buffer) {
      const std::lock_guard lock(mutex_);
      buffers_.push_back(std::move(buffer));
    }

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
  };

  const std::function<StatusOr<Buffer>()> make_;
  const std::shared_ptr<Idle> idle_;
};

}  // namespace longhaul::worker
