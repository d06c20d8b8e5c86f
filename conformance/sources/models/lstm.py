"""A character model: embedding, two LSTM layers, a linear head; the state goes in and comes out."""

from torch import nn


class CharLSTM(nn.Module):
    def __init__(self, vocabulary: int = 12, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, state):
        y, state = self.lstm(self.embedding(tokens), state)
        return self.head(y), state
