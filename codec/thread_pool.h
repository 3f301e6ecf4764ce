// A fixed number of threads that help with codec calls. Only one For runs at a time. The destructor
// joins the threads; it must not run during a For.
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
  // `threads`: number of threads that work, at least 1, including the one that calls For.
  explicit ThreadPool(size_t threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const override { return helpers_.size() + 1; }
  // As in Parallel. Must not be called by two threads at the same time, nor inside a body.
  void For(size_t count, absl::FunctionRef<void(size_t)> body) override;

 private:
  using Body = absl::FunctionRef<void(size_t)>;

  void Help();
  void Work(size_t count, const Body& body);

  std::mutex mutex_;
  std::condition_variable changed_;
  const Body* body_ = nullptr;  // of the running For
  size_t count_ = 0;            // of the running For
  uint64_t round_ = 0;          // number of calls of For so far
  size_t busy_ = 0;             // number of helpers that have not finished the running For
  bool stopping_ = false;
  std::atomic<size_t> next_ = 0;  // argument of the next call of the body
  std::vector<std::thread> helpers_;
};

}  // namespace longhaul::codec
