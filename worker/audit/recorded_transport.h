// A transport whose links play a recording (worker/pipeline/input_recorder.h) to one cell, in place
// of the cell's neighbours. What the cell sends is acknowledged at once and thrown away; its
// digests are in the cell's reports.
//
// Messages of a step are played when the cell can take them:
//   activations of the first step       at Play
//   the decision of a step, and then    when the cell has sent all gradients and the norm of the
//     activations of the next step        step
//   a gradient                          when the cell has sent the activation of the same slice
//   the norm from below                 after the last gradient of the step
//
// If a codec has state, the cell asks what its neighbour remembers (kMessageState). The link says
// that it is the same.
//
// Threads: as transport::Transport. Play and Describe on any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/p2p/link.h"
#include "worker/pipeline/input_recorder.h"

namespace longhaul::worker {

class RecordedTransport final : public transport::Transport {
 public:
  // `recording`: whole messages in the order of their arrival; their bytes must outlive this
  // object. `epoch` and `stamp`: of the assignment that the cell carries out now.
  RecordedTransport(const std::vector<RecordedMessage>& recording, Epoch epoch, Stamp stamp);
  ~RecordedTransport() override;

  // Begins to play, on all open links. Call it when the cell is ready and all its links are open.
  void Play();

  const std::string& address() const override { return address_; }
  void Expect(const transport::LinkKey& key, std::string_view secret,
              std::shared_ptr<transport::LinkHandler> handler,
              const transport::LinkOptions& options, Deadline deadline, OpenDone done) override;
  void Dial(const std::vector<std::string>& addresses, const transport::LinkKey& key,
            std::string_view secret, std::shared_ptr<transport::LinkHandler> handler,
            const transport::LinkOptions& options, Deadline deadline, OpenDone done) override;
  void Readdress(const transport::LinkKey& /*key*/,
                 const std::vector<std::string>& /*addresses*/) override {}
  void Cancel(const transport::LinkKey& /*key*/) override {}

 private:
  class Loop;
  class RecordedLink;

  const std::string address_ = "recorded";
  const Epoch epoch_;
  const Stamp stamp_;
  std::map<EdgeId, std::vector<RecordedMessage>> of_edges_;
  const std::shared_ptr<Loop> loop_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<RecordedLink>> links_;  // guarded by mutex_
};

}  // namespace longhaul::worker
