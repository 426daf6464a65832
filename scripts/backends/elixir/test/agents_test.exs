defmodule CpLoop.AgentsTest do
  @moduledoc "Agents in one runtime, from end to end through the escript, with shell scripts as models."

  use ExUnit.Case, async: true

  @moduletag :tmp_dir

  setup_all do
    Mix.Task.run("escript.build")
    :ok
  end

  # A model that crashes on each prompt that contains `doomed`, and answers the others.
  @model """
  #!/bin/sh
  while read -r line; do
    case $line in
      *doomed*) kill -9 $$ ;;
      *silent*) exec sleep 600 ;;
      *summary*) exit 0 ;;
    esac
    printf '{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"m","role":"assistant","content":"fine","tool_calls":[]}}\\n'
  done
  """

  defp prompt(text) do
    ~s({"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":"#{text}"}]}}\n)
  end

  defp run(dir, prompts, script \\ ~s("$LOOP" ./model <input)) do
    File.write!(Path.join(dir, "model"), @model)
    File.chmod!(Path.join(dir, "model"), 0o755)
    File.write!(Path.join(dir, "input"), prompts)
    {output, status} = System.cmd("sh", ["-c", script], cd: dir, env: [{"LOOP", Path.expand("cp-loop")}])
    {output |> String.split("\n", trim: true) |> Enum.map(&Map.new(CpLoop.Wire.decode(&1))), status}
  end

  defp of_type(records, type), do: Enum.filter(records, &(&1["type"] == type))

  test "agent_crash_leaves_other_agents", %{tmp_dir: dir} do
    {records, status} = run(dir, Enum.map(~w(one doomed two three), &prompt/1))
    assert length(of_type(records, "message")) == 3
    assert [%{"error" => {error}}] = of_type(records, "error")
    assert Map.new(error)["code"] == "E_IO"
    {counts} = List.last(records)["data"]
    assert %{"total" => 4, "succeeded" => 3, "failed" => 1} = Map.new(counts)
    assert status == 0
  end

  test "all_failed_agents_fail_the_stream", %{tmp_dir: dir} do
    {records, status} = run(dir, [prompt("doomed")])
    assert of_type(records, "message") == [] and List.last(records)["ok"] == false
    assert status == 1
  end

  test "signal_writes_closing_line", %{tmp_dir: dir} do
    script = ~S"""
    { cat input; sleep 5; } | { exec 3<&0; "$LOOP" ./model <&3 & sleep 2; kill -TERM $!; wait $!; }
    """

    {records, status} = run(dir, [prompt("silent")], script)
    assert [%{"ok" => false, "error" => {error}, "meta" => _}] = records
    assert Map.new(error)["code"] == "E_INTERRUPTED" and status == 130
  end
end
