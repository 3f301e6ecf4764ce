// Runs one function on another thread; the destructor waits for its end.
//
//   Beside<TokenFile> text([&](const GivenUp& given_up) { return Fetch(given_up); });
//   ...
//   LH_ASSIGN_OR_RETURN(TokenFile file, text.Take());
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <utility>

#include "base/status.h"

namespace longhaul::worker {

// Returns true once the result is no longer wanted. The function should poll it and then return.
using GivenUp = std::function<bool()>;

template <class Result>
class Beside {
 public:
  // Begins to run `work`, a callable that takes a GivenUp and returns a StatusOr<Result>.
  template <class Work>
  explicit Beside(Work work)
      : result_(std::async(std::launch::async, [this, task = std::move(work)]() mutable {
          return task(GivenUp([this] { return given_up_.load(std::memory_order_relaxed); }));
        })) {}
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  // Makes the function's GivenUp return true, and waits until the function returns.
  ~Beside() { given_up_.store(true, std::memory_order_relaxed); }

  // Waits for the function's result and returns it. Call it once.
  StatusOr<Result> Take() { return result_.get(); }

 private:
  std::atomic<bool> given_up_{false};
  // last member: its destructor waits for the function, which reads given_up_
  std::future<StatusOr<Result>> result_;
};

}  // namespace longhaul::worker
