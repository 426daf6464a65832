defmodule CpLoop.Conversation do
  @moduledoc """
  A prompt and what came of it. It is kept in a table, with the agent that works on it and why the
  last one failed: an agent that is started again goes on where the one before it was.
  """

  alias CpLoop.Wire

  # Where it stands: it `:asks` the model, `:waits` for results, is `:over`, or has `{:failed, error}`.
  defstruct [:id, :prompt, :turns, :history, stands: :asks, waiting: [], results: []]

  @places %{agent: 3, reason: 4}

  @doc "Makes the table."
  def init, do: :ets.new(__MODULE__, [:named_table, :public])

  def save(conversation) do
    :ets.update_element(__MODULE__, conversation.id, {2, conversation}) ||
      :ets.insert(__MODULE__, {conversation.id, conversation, nil, nil})

    conversation
  end

  def load(id), do: :ets.lookup_element(__MODULE__, id, 2)
  def note(id, name, value), do: :ets.update_element(__MODULE__, id, {@places[name], value})
  def noted(id, name), do: :ets.lookup_element(__MODULE__, id, @places[name])
  def forget(id), do: :ets.delete(__MODULE__, id)

  @doc "The conversation that a prompt begins; nil where the prompt asks nothing."
  def begin(id, {members}) do
    with %{"messages" => [_ | _] = turns} = prompt <- Map.new(members),
         do: %__MODULE__{id: id, prompt: prompt, turns: turns, history: prompt["history"] || 0},
         else: (_ -> nil)
  end

  def begin(_id, _data), do: nil

  @doc "Whether nothing is to be asked any more."
  def settled?(%{stands: stands}), do: stands not in [:asks, :waits]

  @doc "The record that asks the model for the next message."
  def question(%{stands: :asks} = conversation) do
    asked = %{"messages" => conversation.turns, "history" => conversation.history}
    Wire.open("prompt", Map.merge(conversation.prompt, asked))
  end

  @doc "The model has answered: the calls of its message want results."
  def answered(%{stands: :asks} = conversation, %{"content" => content} = message) do
    calls = for {call} <- message["tool_calls"] || [], do: Map.new(call)
    turns = conversation.turns ++ [%{"role" => "assistant", "content" => with_calls(content, calls)}]
    stands = if calls == [], do: :over, else: :waits
    waiting = for %{"id" => id} <- calls, do: id
    %{conversation | turns: turns, history: length(turns), stands: stands, waiting: waiting, results: []}
  end

  @doc "A tool has answered. With the last result the model is asked again."
  def returned(%{stands: :waits} = conversation, %{"id" => id} = result) do
    results = conversation.results ++ [block_of(result)]
    conversation = %{conversation | waiting: List.delete(conversation.waiting, id), results: results}
    if conversation.waiting == [], do: next(conversation), else: conversation
  end

  defp next(conversation) do
    turn = %{"role" => "user", "content" => conversation.results}
    %{conversation | stands: :asks, turns: conversation.turns ++ [turn]}
  end

  # A message whose content holds its calls, as a provider must get it back.
  defp with_calls(content, []), do: content
  defp with_calls("", calls), do: with_calls([], calls)
  defp with_calls(text, calls) when is_binary(text), do: with_calls([{[type: "text", text: text]}], calls)

  defp with_calls(blocks, calls) do
    if Enum.any?(blocks, fn {block} -> {"type", "tool_use"} in block end),
      do: blocks,
      else: blocks ++ for(call <- calls, do: call |> Map.take(~w(id name input)) |> Map.put("type", "tool_use"))
  end

  defp block_of(result) do
    block = %{"type" => "tool_result", "tool_use_id" => result["id"], "content" => result["content"]}
    if result["is_error"], do: Map.put(block, "is_error", true), else: block
  end
end
