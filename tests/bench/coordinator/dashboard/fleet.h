// Workers that a dashboard can show: a shell and a store as a coordinator has them, and stand-ins
// that say what workers say, without gRPC, models or links.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/store.h"

namespace longhaul::bench {

// One stand-in. The shell's thread calls Send; others the rest.
class StandIn : public coordinator::SessionSink, public std::enable_shared_from_this<StandIn> {
 public:
  StandIn(coordinator::Shell* shell, std::string name) : shell_(shell), name_(std::move(name)) {}
  Status Join();
  void Beat();
  // Finishes a step, where it has a stage that trains.
  void Step(uint64_t step);
  // Its link down the pipeline: "lost", "healed", ...
  void SayLink(const std::string& state);
  bool training() const { return training_; }
  uint64_t taken() const { return taken_; }

  void Send(v1::WorkerCommand command) override;
  void Close(const std::string&, bool) override { training_ = false; }
  void Taken(size_t messages) override { taken_ += messages; }

 private:
  v1::WorkerMessage Message() const;
  void Say(v1::WorkerMessage message);
  v1::StageTrace Trace() const;

  coordinator::Shell* const shell_;
  const std::string name_;
  coordinator::SessionId session_;
  mutable std::mutex mutex_;  // of all below
  v1::Assign assign_;
  uint64_t step_ = 0;
  std::atomic<bool> training_ = false;
  std::atomic<uint64_t> taken_ = 0;
};

class Fleet {
 public:
  static StatusOr<std::unique_ptr<Fleet>> Create(const std::string& folder, uint32_t workers);
  ~Fleet();

  coordinator::Shell& shell() { return *shell_; }
  // Submits a run of so many stages and waits until it trains.
  StatusOr<std::string> Train(const std::string& name, uint32_t stages, uint64_t steps);
  // All stages finish the next `count` steps. Waits until the state machine has them.
  Status Step(uint64_t count);
  void Beat();
  void SayLink(uint32_t stage, const std::string& state);
  // Stops the run at once, and removes it.
  Status Remove();
  uint64_t step() const { return step_; }

 private:
  std::unique_ptr<coordinator::Store> store_;
  std::unique_ptr<coordinator::BlobStore> blobs_;
  std::unique_ptr<coordinator::Shell> shell_;
  std::vector<std::shared_ptr<StandIn>> workers_;
  uint64_t step_ = 0;
};

}  // namespace longhaul::bench
