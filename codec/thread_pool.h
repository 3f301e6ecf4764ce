// A fixed number of threads for codec calls, one For at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "codec/parallel.h"

namespace longhaul::codec {

class ThreadPool final : public Parallel {
 public:
  // `threads` >= 1, including the thread that calls For.
  explicit ThreadPool(size_t threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const override { return helpers_.size() + 1; }
  // Must not be called from two threads at once, nor inside a body.
  void For(size_t count, absl::FunctionRef<void(size_t)> body) override;

 private:
  using Body = absl::FunctionRef<void(size_t)>;

  void Help();
  void Work(size_t count, const Body& body);

  std::mutex mutex_;
  std::condition_variable changed_;
  const Body* body_ = nullptr;  // body of the running For, as are the members below
  size_t count_ = 0;
  uint64_t round_ = 0;  // number of Fors so far
  size_t busy_ = 0;     // number of helpers that have not finished it
  bool stopping_ = false;
  std::atomic<size_t> next_ = 0;
  std::vector<std::thread> helpers_;
};

}  // namespace longhaul::codec
