"""What people change in the dashboard of a real coordinator: by its API, and in a browser where there is one.

usage: dashboard_changes_test.py BIN_DIR SCREENSHOT_DIR

Begins with nothing, and adds the workers by the commands that the page shows.
"""
import json
import os
import pathlib
import re
import shlex
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/multiprocess/training")]
import browser as browsers  # noqa: E402
from training_test import DEFAULT, Cluster, text_for_training, wait_for  # noqa: E402

ENDED = ("done", "stopped", "failed")


class Api:
    """The dashboard as somebody with this key sees it."""

    def __init__(self, address, key=""):
        self.address, self.key = address, key
        self.trusting = ssl.create_default_context()
        self.trusting.check_hostname, self.trusting.verify_mode = False, ssl.CERT_NONE

    def ask(self, path, body=None, **headers):
        """The answer's status and JSON. With `body` a change is asked for."""
        headers = {"Content-Type": "application/json", **headers}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.address}/api/{path}", data, headers), timeout=60,
                                        context=self.trusting) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    def done(self, path, body=None):
        status, answer = self.ask(path, body)
        assert status == 200, (path, status, answer)
        return answer

    def state(self, run):
        return self.done(f"run?run={run}")["run"]["state"]


def member(cluster, name, *arguments):
    """The CLI as a user with a certificate of its own."""
    done = subprocess.run([cluster.programs / "longhaul", *arguments, "--coordinator", cluster.address, "--token-file",
                           cluster.folder / f"{name}.token"], capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, "LONGHAUL_IDENTITY": str(cluster.folder / f"{name}.pem")})
    return done.stdout.strip()


def first_page(cluster, api, browser):
    """A new installation says how to begin, and its commands work."""
    commands = api.done("joining")
    if browser:
        page = browser.open(api.address)
        page.wait("document.querySelector('#joining code')")
        assert "There is no worker yet" in page.evaluate("document.querySelector('#who-is-there').innerText")
        shown = page.evaluate("document.querySelector('#joining code').innerText")
        assert shown == commands["here"], (shown, commands)
        page.screenshot(PICTURES / "first_page.png")
    program, *arguments = shlex.split(commands["here"])
    assert program == "longhaul-worker", commands
    for number in (1, 2):
        log = open(cluster.folder / f"worker{number}.log", "a", encoding="utf-8")
        here = arguments[:arguments.index("--state-dir")] + ["--state-dir", str(cluster.folder / f"worker{number}")]
        cluster.processes[f"worker{number}"] = subprocess.Popen(
            [cluster.programs / program, *here, "--name", f"worker{number}", "--device", "cpu"], stdout=log, stderr=log)
    wait_for("the workers", lambda: api.done("overview")["workers"]["connected"] == 2)
    if browser:
        page.wait("document.querySelector('#who-is-there').innerText.includes('2 of 2')")
        return page
    return None


def keys(cluster, address):
    """An admin's and a user's, who are known by their certificates."""
    token = cluster.cli("token", "create", "--role", "user").stdout
    (cluster.folder / "ulla.token").write_text(token)
    (cluster.folder / "ulla.token").chmod(0o600)
    admin = Api(address, cluster.cli("dashboard-key").stdout.strip())
    user = Api(address, member(cluster, "ulla", "dashboard-key", "--ttl", "1h"))
    assert admin.done("me")["role"] == "admin"
    assert user.done("me")["role"] == "user"
    refused = cluster.cli("dashboard-key", "--ttl", "31d", check=False)
    assert refused.returncode == 1 and "30 days" in refused.stderr, refused
    return admin, user


def rights(cluster, api, admin, user, run):
    """Nobody changes what is not his, whatever he sees."""
    for path, body in (("stop", {"run": run}), ("submit", {"run": run, "yaml": "name: a"})):
        assert api.ask(path, body)[0] == 401
        assert user.ask(path, body)[0] == 404, user.ask(path, body)
        assert Api(api.address, admin.key[:-6] + "AAAAAA").ask(path, body)[0] == 401
    assert user.ask(f"submission?run={run}")[0] == 404
    assert admin.ask("stop", {"run": run}, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert api.state(run) not in ENDED


def stops_and_resumes(cluster, admin, run):
    wait_for("some steps", lambda: cluster.step(run) >= 3)
    assert admin.done("stop", {"run": run})["message"]
    wait_for("the stop", lambda: admin.state(run) == "stopped")
    step = cluster.step(run)
    file = admin.done(f"submission?run={run}")
    assert [pathlib.Path(one["name"]).name for one in file["files"]] == ["text.txt"], file
    refused = admin.ask("submit", {"run": run, "yaml": file["yaml"].replace("hidden: 64", "hidden: 32"), "resume": True})
    assert refused[0] == 409 and "model.hidden is 64" in refused[1]["error"], refused
    resumed = admin.done("submit", {"run": run, "yaml": file["yaml"], "resume": True})
    assert resumed["run_id"] == run, resumed
    wait_for("more steps", lambda: cluster.step(run) > step)
    return file["yaml"]


def submits_a_variant(admin, run, yaml):
    """With the data of a run that is there, without the CLI."""
    bad = admin.ask("submit", {"run": run, "yaml": "name: b\nmodel: nonsense\n"})
    assert bad[0] == 400 and "model" in bad[1]["error"], bad
    assert admin.ask("submit", {"yaml": yaml})[0] in (400, 409)  # its data are missing
    renamed = re.sub(r"^name: .*$", "name: variant", yaml, count=1, flags=re.MULTILINE)
    assert renamed != yaml
    other = admin.done("submit", {"run": run, "yaml": renamed})["run_id"]
    assert other.startswith("variant-"), other
    return other


def in_the_browser(browser, page, admin, run, other):
    """The same by hand: signing in, the form, the buttons; and runs side by side."""
    page.evaluate(f"location.hash = '#run/{run}'")
    page.wait("document.querySelector('.actions')")
    visible = "getComputedStyle(document.querySelector('.actions .with-key')).display !== 'none'"
    assert not page.evaluate(visible), "buttons for those without a key"
    page.evaluate("document.querySelector('#session').click()")
    page.evaluate("document.querySelector('#dashboard-key').value = 'wrong'")
    page.evaluate("document.querySelector('dialog button.main').click()")
    page.wait("document.querySelector('dialog .error').innerText.includes('no key')")
    page.evaluate(f"document.querySelector('#dashboard-key').value = {admin.key!r}")
    page.evaluate("document.querySelector('dialog button.main').click()")
    page.wait(f"!document.querySelector('dialog') && {visible}")
    click = "[...document.querySelectorAll('.actions button')].find((one) => one.innerText === {!r}).click()"
    page.evaluate(click.format("Submit again"))
    page.wait("document.querySelector('#run-file')?.value.includes('name: ')")
    page.screenshot(PICTURES / "submit_again.png")
    page.evaluate("document.querySelector('#run-file').value = document.querySelector('#run-file').value.replace(/^name: .*$/m, 'name: typed')")
    page.evaluate("document.querySelector('dialog button.main').click()")
    page.wait("location.hash.startsWith('#run/typed-') && document.querySelector('h1').innerText.startsWith('typed-')")
    typed = page.evaluate("location.hash.slice(5)")
    page.evaluate(click.format("Stop"))
    page.evaluate("document.querySelector('dialog button.bad').click()")
    wait_for("the stop by hand", lambda: admin.state(typed) == "stopped")
    page.evaluate(f"location.hash = '#run/{run}'")
    page.wait("document.querySelectorAll('.map .way').length === 2")
    page.evaluate(f"location.hash = '#compare/{run},{other}'")
    page.wait("document.querySelector('#compared').dataset.curves === '2' && document.querySelectorAll('#numbers tbody tr').length === 2")
    page.screenshot(PICTURES / "compare.png", whole=True)
    # A key that is wrong, and what was asked before the run was there.
    refused = [error for error in page.errors if "401" in error or "404" in error]
    assert page.errors == refused, page.errors
    # As on a phone: nothing is wider than the screen.
    for scheme in ("light", "dark"):
        phone = browser.open(admin.address, scheme=scheme, width=390)
        for hash_, there in ((f"run/{other}", "document.documentElement.dataset.drawn && document.querySelector('.map .way')"),
                             (f"compare/{run},{other}", "document.querySelector('#compared').dataset.curves === '2'"),
                             ("workers", "document.querySelectorAll('#workers tbody tr').length === 2")):
            phone.evaluate(f"location.hash = '#{hash_}'")
            phone.wait(there)
            wide = phone.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, (hash_, "is wider than a phone", wide)
            phone.screenshot(PICTURES / f"phone_{hash_.split('/')[0]}_{scheme}.png", whole=True)
        assert not phone.errors, phone.errors


def encrypted(cluster):
    """Another coordinator whose dashboard has TLS: nothing without a key. Its certificate is some that is at hand."""
    pem, state, log = (cluster.folder / name for name in ("coordinator/authority.pem", "encrypted", "encrypted.log"))
    with open(log, "w", encoding="utf-8") as out:
        cluster.processes["encrypted"] = subprocess.Popen(
            [cluster.programs / "longhaul-coordinator", "--listen", "127.0.0.1:0", "--state-dir", state, "--http", "127.0.0.1:0",
             "--http-certificate", pem, "--http-key", pem], stdout=out, stderr=out)
    address = wait_for("the other dashboard", lambda: re.search(r"dashboard at (https://\S+)/", log.read_text()))[1]
    key = subprocess.run([cluster.programs / "longhaul", "dashboard-key", "--coordinator", (state / "address").read_text().strip(),
                          "--token-file", state / "token"], capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    assert Api(address).ask("overview")[0] == 401
    assert Api(address, key).done("overview")["runs"] == []


def revoked(cluster, user):
    name = user.done("me")["name"]
    cluster.cli("members", "revoke", name)
    assert user.ask("me")[0] == 401
    assert user.ask("stop", {"run": "x"})[0] == 401


def main():
    global PICTURES
    programs, PICTURES = sys.argv[1], pathlib.Path(sys.argv[2])
    PICTURES.mkdir(parents=True, exist_ok=True)
    browsers.leave_network()
    with tempfile.TemporaryDirectory(prefix="longhaul-dashboard-") as folder, Cluster(programs, folder, 0) as cluster:
        address = wait_for("the dashboard", lambda: re.search(
            r"dashboard at (\S+)/", (cluster.folder / "coordinator.log").read_text()))[1]
        api = Api(address)
        text_for_training(folder)
        browser = browsers.Browser() if browsers.find() else None
        if browser is None:
            print("skipped: what needs a browser; deploy/setup.sh --test brings Chromium", flush=True)
        try:
            page = first_page(cluster, api, browser)
            print("ok: a new installation, and the page's command", flush=True)
            admin, user = keys(cluster, address)
            path = cluster.write_run("first", steps=100_000, stages=2, links=DEFAULT, transport="grpc")
            run = cluster.cli("submit", path).stdout.split()[0]
            rights(cluster, api, admin, user, run)
            print("ok: rights", flush=True)
            yaml = stops_and_resumes(cluster, admin, run)
            other = submits_a_variant(admin, run, yaml)
            print("ok: stop, resume, submit", flush=True)
            if browser:
                admin.done("stop", {"run": run})
                wait_for("a turn for the variant", lambda: cluster.step(other) >= 2)
                in_the_browser(browser, page, admin, run, other)
                print("ok: by hand", flush=True)
            encrypted(cluster)
            revoked(cluster, user)
            actions = {json.loads(line)["action"] for line in cluster.cli("audit", "--json").stdout.splitlines()}
            assert {"dashboard-key", "submit", "stop"} <= actions, actions
            print("ok: a revoked member, and the audit log", flush=True)
        finally:
            if browser:
                browser.__exit__()


if __name__ == "__main__":
    main()
