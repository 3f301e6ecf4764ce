// Calls of the CLI that wait for the state machine. Each is answered exactly once: by Answer, by
// FailAll, or by the caller that got true from Drop. Thread-safe. Answer and FailAll run callbacks
// on the thread that calls them, without locks.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "coordinator/state/state.h"

namespace longhaul::coordinator {

template <class Reply>
class PendingCalls {
 public:
  using Done = std::function<void(StatusOr<Reply>)>;

  // `id` must be new: for an id that already waits, Add drops `done`.
  void Add(RequestId id, Done done) {
    const std::lock_guard lock(mutex_);
    calls_.emplace(id, std::move(done));
  }

  // True: the call was waiting, and its callback will not run.
  bool Drop(RequestId id) {
    const std::lock_guard lock(mutex_);
    return calls_.erase(id) > 0;
  }

  // Does nothing if the call no longer waits.
  void Answer(RequestId id, StatusOr<Reply> reply) {
    Done done;
    {
      const std::lock_guard lock(mutex_);
      const auto found = calls_.find(id);
      if (found == calls_.end()) return;
      done = std::move(found->second);
      calls_.erase(found);
    }
    done(std::move(reply));
  }

  // Answers all waiting calls with `status`, which must be an error. The destructor does not.
  void FailAll(const Status& status) {
    std::map<RequestId, Done> calls;
    {
      const std::lock_guard lock(mutex_);
      calls.swap(calls_);
    }
    for (auto& [id, done] : calls) done(status);
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return calls_.size();
  }

 private:
  mutable std::mutex mutex_;  // guards calls_
  std::map<RequestId, Done> calls_;
};

}  // namespace longhaul::coordinator
