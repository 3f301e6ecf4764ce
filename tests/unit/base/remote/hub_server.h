// Runs tests/support/hub_server.py: a hub and its CDN, which misbehave on command. Threads: one.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/remote/store.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace longhaul::testing {

class HubServer {
 public:
  using Json = nlohmann::json;

  HubServer() {
    auto started = Subprocess::Start({HUB_SERVER_PYTHON, HUB_SERVER_SCRIPT, certificate()});
    EXPECT_TRUE(started.ok()) << started.status();
    process_ = *std::move(started);
    EXPECT_TRUE(process_->WaitForOutput("ready", Deadline::After(absl::Seconds(60))))
        << process_->standard_error();
    char word[8];
    std::istringstream line(process_->standard_output());
    line >> word >> hub_port_ >> word >> cdn_port_ >> word >> s3_port_ >> word >> tls_port_ >>
        word >> control_port_;
  }

  std::string hub() const { return "http://127.0.0.1:" + std::to_string(hub_port_); }
  std::string cdn() const { return "http://127.0.0.1:" + std::to_string(cdn_port_); }
  std::string s3() const { return "http://127.0.0.1:" + std::to_string(s3_port_); }
  std::string tls() const { return "https://127.0.0.1:" + std::to_string(tls_port_); }
  std::string certificate() const { return folder_.path() + "/certificate.pem"; }
  int cdn_port() const { return cdn_port_; }
  int hub_port() const { return hub_port_; }

  // Carries one command out, which is a method of Control, and returns its result.
  Json Do(const std::string& command, Json arguments = Json::object()) {
    arguments["do"] = command;
    httplib::Client client("127.0.0.1", control_port_);
    client.set_read_timeout(60);
    const auto answer = client.Post("/", Json::array({arguments}).dump(), "application/json");
    EXPECT_TRUE(answer && answer->status == 200) << process_->standard_error();
    return answer ? Json::parse(answer->body).at(0) : Json();
  }
  void Fault(const std::string& server, Json fault) {
    fault["server"] = server;
    Do("fault", std::move(fault));
  }

 private:
  const TempDir folder_;
  std::unique_ptr<Subprocess> process_;
  int hub_port_ = 0, cdn_port_ = 0, s3_port_ = 0, tls_port_ = 0, control_port_ = 0;
};

// Options of a store that asks this machine's servers, in parts of `part_bytes`, and never waits.
inline remote::Options LocalOptions(uint64_t part_bytes) {
  remote::Options options;
  options.hosts = {.hosts = {"127.0.0.1:*"}, .local_hosts = {"127.0.0.1:*"}};
  options.part_bytes = part_bytes;
  options.parallel = 4;
  options.patience.sleep = [](absl::Duration) {};
  return options;
}

// The bytes that the server's fill() makes.
inline std::string Fill(char seed, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    const size_t at = i % (251 * 8);
    bytes[i] = static_cast<char>((at * at + 3 * at + static_cast<size_t>(seed)) % 251);
  }
  return bytes;
}

}  // namespace longhaul::testing
