// Messages over one TCP connection, for backends whose connections are byte streams (tcp, relay).
// A message on the wire is a link header (proto/wire/link_header.h) and its payload, and the next
// message follows at once: the header says where the payload ends.
//
// A backend derives a class, which opens the stream in its own way (a relay greets first) and then
// calls Open. From then on this class carries messages.
//
// Threads: all on the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/stream/resolve.h"
#include "transport/relay/congestion.h"
#include "transport/relay/socket.h"

namespace longhaul::transport::stream {

class StreamConnection;

// The connections of a backend, and the resolver that they share.
struct ConnectionTable {
  std::shared_ptr<Resolver> resolver;
  internal::ConnectionSet<StreamConnection> connections;
};

class StreamConnection : public internal::Connection,
                         public std::enable_shared_from_this<StreamConnection> {
 public:
  void SetEvents(std::shared_ptr<internal::ConnectionEvents> events) override;
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override;
  void Close() override { CloseWith(absl::CancelledError("closed on this side")); }
  std::string Describe() const override { return words_.description; }

 protected:
  // Words in messages for people.
  struct Words {
    std::string description;  // "10.77.0.2:41234 <-> 10.77.0.3:40312"
    std::string ended;        // why, if the peer ends the stream: "the peer ended the connection"
    std::string broken;       // what comes before the system's reason: "through relay host:port: "
  };
  StreamConnection(std::shared_ptr<EventLoop> loop, std::shared_ptr<ConnectionTable> table,
                   Words words);

  // The derived class adds itself to the table, and then calls one of these.
  //
  // Looks up and dials `address`. OnConnected or OnClosed follows.
  void Dial(const HostPort& address, const longhaul::relay::KeepAlive& keep_alive);
  // Takes the connected, nonblocking socket `fd`, and opens the stream.
  void Adopt(UniqueFd fd);

  // Carries messages from now on. The derived class has read all bytes before the first message.
  void Open();
  // Closes the connection. OnClosed gets `reason` if that is kCancelled or kUnavailable, else
  // kUnavailable with the same message.
  void CloseWith(const Status& reason);

  // The socket is connected. Call Open, or answer first.
  virtual void OnConnected() = 0;
  // Bytes may have arrived at a connected socket that is not open yet.
  virtual void OnGreeting() {}
  // The connection is about to close.
  virtual void OnClosing() {}
  // A later call of SetEvents has replaced the receiver: the peer has proved itself.
  virtual void OnAdmitted() {}

  int fd() const { return fd_.get(); }
  EventLoop& loop() { return *loop_; }
  bool IsClosed() const { return state_ == State::kClosed; }

 private:
  enum class State : uint8_t { kLookingUp, kConnecting, kConnected, kOpen, kClosed };
  struct Waiting {
    std::span<const std::byte> header;
    FrameView payload;
    SendDone done;
    size_t size() const { return header.size() + payload.size(); }
  };

  void Connect(const StatusOr<SocketAddress>& address,
               const longhaul::relay::KeepAlive& keep_alive);
  void OnEvent(uint32_t events);
  void FinishConnect();
  void TakeMessages();
  // Makes room behind the received bytes for the rest of the message that has begun.
  void MakeRoom();
  // Takes note that `read` bytes more came, for fast_.
  void MeasurePace(size_t read);
  // Has the kernel wake this side only when the message that has begun is whole, and those are that
  // the peer says follow at once.
  void WaitForRest();
  // Waits for the followers no longer than kLongestWait: they may not come.
  void WatchFollowers();
  // Delivers the messages in the buffer that have arrived whole. False: the connection is closed,
  // or is_garbled_.
  bool Deliver();
  void Flush();
  void FlushSoon();
  void WatchFor(uint32_t events);

  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<ConnectionTable> table_;
  const Words words_;
  UniqueFd fd_;
  State state_ = State::kLookingUp;
  uint32_t watched_ = 0;
  bool events_set_ = false;
  std::shared_ptr<internal::ConnectionEvents> events_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;  // received bytes that were not delivered: a part of buffer_
  bool admitted_ = false;       // the peer has proved itself
  size_t following_ = 0;        // bytes that follow the delivered messages at once
  bool patient_ = true;         // waits for these, and for those behind the message that has begun
  // The line is so fast that waiting for followers saves nothing.
  bool fast_ = false;
  size_t paced_bytes_ = 0;  // read since paced_since_
  MonoTime paced_since_;
  int low_water_ = 1;                       // SO_RCVLOWAT
  uint64_t reads_ = 0, reads_watched_ = 0;  // calls that read something: now, at the timer's start
  std::optional<EventLoop::TimerId> followers_timer_;
  bool is_garbled_ = false;  // the received bytes are not a message; nothing after them can be read
  std::deque<Waiting> waiting_;
  size_t sent_of_first_ = 0;
  bool flush_posted_ = false;
  longhaul::relay::SendingLine line_;
};

}  // namespace longhaul::transport::stream
