// One piece of work beside the caller's thread, whose end waits for it.
//
//   Beside<TokenFile> text([&](const GivenUp& given_up) { return Fetch(given_up); });
//   ...
//   LH_ASSIGN_OR_RETURN(TokenFile file, text.Take());
#ifndef LONGHAUL_WORKER_RPC_BESIDE_H_
#define LONGHAUL_WORKER_RPC_BESIDE_H_

#include <atomic>
#include <functional>
#include <future>
#include <utility>

#include "base/status.h"

namespace longhaul::worker {

// Whether nobody wants the result any more; asked now and then by the work.
using GivenUp = std::function<bool()>;

template <class Result>
class Beside {
 public:
  template <class Work>
  explicit Beside(Work work)
      : result_(std::async(std::launch::async, [this, task = std::move(work)]() mutable {
          return task(GivenUp([this] { return given_up_.load(std::memory_order_relaxed); }));
        })) {}
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  // Gives it up, where it was not taken, and waits until it has noticed.
  ~Beside() { given_up_.store(true, std::memory_order_relaxed); }

  // Once.
  StatusOr<Result> Take() { return result_.get(); }

 private:
  std::atomic<bool> given_up_{false};
  std::future<StatusOr<Result>> result_;  // last: its destructor waits, and the work asks given_up_
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_BESIDE_H_
